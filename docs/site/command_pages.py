"""The command line's reference: a page for every verb, from its click command."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click
from writing import escaped, table

from flatout.cli import _group
from flatout.cli.options import KINDS

_FOLDER = "reference/commands"
_KIND_WORDS = {str: "text", float: "number", bool: "true or false"}


def pages() -> dict[str, str]:
    made = {f"{_FOLDER}/{context.info_name}.md": _page(context) for context in _verbs()}
    return {f"{_FOLDER}/index.md": _index(), **made}


def _verbs() -> Iterator[click.Context]:
    top = click.Context(_group, info_name="flatout", **_group.context_settings)
    for name in _group.list_commands(top):
        command = _group.get_command(top, name)
        assert command is not None, name
        yield _context(command, top, name)


def _context(command: click.Command, parent: click.Context, name: str) -> click.Context:
    return click.Context(command, parent=parent, info_name=name, **command.context_settings)


def _index() -> str:
    rows = [(f"[`flatout {c.info_name}`]({c.info_name}.md)", escaped(_paragraphs(c.command)[0])) for c in _verbs()]
    settings = [(f"`{key}`", f"`FLATOUT_{key.upper()}`", _KIND_WORDS[kind]) for key, kind in KINDS.items()]
    return "\n\n".join(
        [
            "# Commands",
            table(("command", "what it does"), rows),
            "A mistake is one line on stderr and exit code 2. `flatout run` leaves with the script's own exit code.",
            "## Settings outside of the command line",
            "For `flatout run`: a flag wins over a variable, a variable over `flatout.toml`, that over "
            "`[tool.flatout]` in `pyproject.toml`. Files are looked for in the working folder and above it, within "
            "the same repository.",
            table(("key in a file", "variable", "kind"), settings),
        ]
    )


def _page(context: click.Context) -> str:
    command = context.command
    parts = [f"# flatout {context.info_name}", "[Commands](index.md)", *_body(context)]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            one = command.get_command(context, name)
            assert one is not None, name
            parts += [f"## flatout {context.info_name} {name}", *_body(_context(one, context, name))]
    return "\n\n".join(parts) + "\n"


def _body(context: click.Context) -> list[str]:
    usage = " ".join([context.command_path, *context.command.collect_usage_pieces(context)])
    texts = [escaped(paragraph) for paragraph in _paragraphs(context.command)]
    return [f"    {usage}", *texts, table(("option", ""), _options(context))]


def _options(context: click.Context) -> Iterator[tuple[str, str]]:
    for parameter in context.command.get_params(context):
        # Arguments are in the usage line, and told of in the text.
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            yield f"`{record[0]}`", escaped(record[1])


def _paragraphs(command: click.Command) -> list[str]:
    # A line that is only \b tells click to leave a paragraph's lines as they are.
    text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    return [paragraph for paragraph in text.split("\n\n") if paragraph.strip()]

"""The command line. A verb is a click command in one of the files of this folder.

Commands import what they need when they run: completion and help have no need of it.
A file is imported only when one of its verbs is called, so `flatout --help` stays quick and a verb whose extra is not
installed does not disturb the others. The first line of a command's docstring is its line in `flatout --help`.
"""

from __future__ import annotations

import ast
import importlib
import io
import keyword
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from flatout import __version__
from flatout.errors import FlatoutError

_FOLDER = Path(__file__).parent
# Which file holds which verbs.
_FILES = {
    "run": ("run", "watch", "demo", "serve"),
    "fix": ("fix", "verify", "tune"),
    "check": ("check", "explain"),
    "stored": ("runs", "diagnose", "report", "compare", "logs", "export", "import"),
    "machine": ("doctor", "memory"),
}
VERBS = {verb: file for file, verbs in _FILES.items() for verb in verbs}
_PROG = "flatout"


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        try:
            module = importlib.import_module(f"{__name__}.{VERBS[cmd_name]}")
        except ImportError as error:
            raise FlatoutError(f"{cmd_name} cannot be used here: {error}; install what is missing") from error
        command = getattr(module, _function(cmd_name))
        assert isinstance(command, click.Command), cmd_name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        lines = {verb: line for file in _FILES for verb, line in _first_lines(file).items()}
        with formatter.section("Commands"):
            formatter.write_dl([(verb, lines.get(verb, "(cannot be loaded)")) for verb in self.list_commands(ctx)])


def _function(verb: str) -> str:
    """`import` is a word that Python keeps for itself."""
    return f"{verb}_" if keyword.iskeyword(verb) else verb


def _first_lines(file: str) -> dict[str, str]:
    """The help lines of a file's verbs, read without importing it."""
    try:
        tree = ast.parse((_FOLDER / f"{file}.py").read_bytes())
    except (OSError, SyntaxError, ValueError):
        return {}
    texts = {node.name: ast.get_docstring(node) for node in tree.body if isinstance(node, ast.FunctionDef)}
    return {verb: (texts.get(_function(verb)) or "").partition("\n")[0] for verb in _FILES[file]}


@click.group(
    cls=_Verbs,
    name=_PROG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: flatout run train.py",
)
@click.version_option(__version__, "-V", "--version", prog_name=_PROG)
@click.pass_context
def _group(ctx: click.Context) -> None:
    """Find what keeps a GPU idle while a PyTorch model trains, fix it, and prove the fix."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(argv: Sequence[str] | None = None) -> None:
    """Run one verb and leave with its exit code. A user's mistake is one line, never a traceback."""
    _prepare_streams()
    sys.exit(_exit_code(argv))


def _prepare_streams() -> None:
    """Printing never fails: neither where a stream is closed nor over a sign that it has no bytes for."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # Open to the end, and not inherited: a script that we start finds its own streams as they were.
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names of files may hold bytes that are no UTF-8: they come out as they went in.
            is_unicode = stream.encoding.lower().replace("-", "") == "utf8"
            stream.reconfigure(errors="surrogateescape" if is_unicode else "replace")


def _exit_code(argv: Sequence[str] | None) -> int:
    try:
        # Without standalone mode click hands its errors to us, so that all of them look the same.
        result = _group.main(None if argv is None else list(argv), prog_name=_PROG, standalone_mode=False)
    except FlatoutError as error:
        return _complain(str(error), error.exit_code)
    except click.UsageError as error:
        return _complain(_usage(error), 2)
    except click.ClickException as error:
        return _complain(error.format_message(), 2)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        # The reader went away (`flatout runs | head`): nothing is wrong.
        _let_go_of_stdout()
        return 0
    except OSError as error:
        # Of the machine, not of us: no room, no permission, a folder that is not there.
        _let_go_of_stdout()
        where = "" if error.filename is None else f"{str(error.filename)!r}: "
        return _complain(f"{where}{error.strerror or error}", 2)
    return result if isinstance(result, int) else 0


def _let_go_of_stdout() -> None:
    """What it still holds and cannot take, Python would complain about once more at the end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _usage(error: click.UsageError) -> str:
    where = error.ctx.command_path if error.ctx else _PROG
    return f"{error.format_message().rstrip('.')} (see {where} --help)"


def _complain(message: str, code: int) -> int:
    # Paths in messages may hold bytes that are no UTF-8; never fail over printing them.
    click.echo(f"{_PROG}: {message}".encode(errors="surrogateescape"), err=True)
    return code

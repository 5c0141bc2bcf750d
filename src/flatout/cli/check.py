"""Find what keeps a GPU idle in the source of a training, before it runs."""

from __future__ import annotations

from pathlib import Path

import click

from flatout.cli.options import section

_FORMATS = ("full", "concise", "json", "sarif", "github")


@click.command()
@click.argument("path", nargs=-1, type=click.Path(path_type=Path))
@click.option("--select", multiple=True, metavar="CODES", help="Only these: codes, beginnings of codes, or names.")
@click.option("--ignore", multiple=True, metavar="CODES", help="Not these.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out files, as a line of .gitignore would.")
@click.option("--format", "output", type=click.Choice(_FORMATS), default="full", help="How to show it (default: full).")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--statistics", is_flag=True, help="Only count the findings of each code.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing; the exit code tells.")
@click.option("-v", "--verbose", is_flag=True, help="Also name the files that could not be read.")
def check(
    path: tuple[Path, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    exclude: tuple[str, ...],
    output: str,
    as_json: bool,
    statistics: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Find what keeps a GPU idle in the source of a training, before it runs.

    PATH is a file, a notebook or a folder (default: the current one); what git ignores is left out. A comment
    `# flatout: ignore[CODE]` on its line silences a finding. Exit code: 0 nothing found, 1 findings, 2 an error.
    """
    # Imported here, because completion and --help have no need of it.
    from flatout.app.check import checked

    settings = section("check", Path.cwd())
    text, report = checked(
        path or (Path("."),),
        select=_split(select) or settings.get("select", []),
        ignore=[*_split(ignore), *settings.get("ignore", [])],
        exclude=[*exclude, *settings.get("exclude", [])],
        output="json" if as_json else output,
        statistics=statistics,
    )
    if not quiet:
        click.echo(text, nl=False)
        _complain(report.trouble, report.files, verbose)
    return 1 if report.findings else 0


def _split(words: tuple[str, ...]) -> list[str]:
    return [one.strip() for word in words for one in word.split(",") if one.strip()]


def _complain(trouble: tuple[str, ...], files: int, verbose: bool) -> None:
    if not files and not trouble:
        click.echo("flatout: no Python file or notebook found there", err=True)
    if trouble and verbose:
        for line in trouble:
            click.echo(f"flatout: {line}".encode(errors="surrogateescape"), err=True)
    elif trouble:
        click.echo(f"flatout: {len(trouble)} files or problems were passed over (-v names them)", err=True)

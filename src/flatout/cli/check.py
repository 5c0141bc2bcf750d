"""Verbs about the catalogue of problems: look for them in source, and explain them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from flatout.cli.options import section
from flatout.records.message import Message
from flatout.records.source import CheckReport
from flatout.words import english

_FORMATS = ("full", "concise", "json", "sarif", "github")


@click.command()
@click.argument("path", nargs=-1, type=click.Path(path_type=Path))
@click.option("--select", multiple=True, metavar="CODES", help="Only these: codes, beginnings of codes, or names.")
@click.option("--ignore", multiple=True, metavar="CODES", help="Not these.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out files, as a line of .gitignore would.")
@click.option("--format", "output", type=click.Choice(_FORMATS), default="full", help="How to show it (default: full).")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--statistics", is_flag=True, help="Only count the findings of each code.")
@click.option("--fix", is_flag=True, help="Write the fixes that keep what the script computes, prints and writes.")
@click.option("--diff", is_flag=True, help="Show what --fix would change as a diff, and write nothing.")
@click.option(
    "--unsafe-fixes", "unsafe", is_flag=True, help="With --fix or --diff: also fixes that may change results."
)
@click.option("--run", metavar="RUN", help="Rank by what each cost in this run: its folder, its id, or 'last'.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing; the exit code tells.")
@click.option("-v", "--verbose", is_flag=True, help="Also name the files that could not be read.")
def check(path: tuple[Path, ...], as_json: bool, fix: bool, diff: bool, **asked: Any) -> int:
    """Find what keeps a GPU idle in the source of a training, before it runs.

    PATH is a file, a notebook or a folder (default: the current one); what git ignores is left out. A comment
    `# flatout: ignore[CODE]` on its line silences a finding. Exit code: 0 nothing found but hints, or left by
    --fix, or to be changed as --diff shows; 1 otherwise; 2 an error.
    """
    from flatout.app import check as app

    quiet, verbose = asked.pop("quiet"), asked.pop("verbose")
    settings = section("check", Path.cwd())
    asked["select"] = _split(asked["select"]) or settings.get("select", [])
    asked["ignore"] = [*_split(asked["ignore"]), *settings.get("ignore", [])]
    asked["exclude"] = [*asked["exclude"], *settings.get("exclude", [])]
    if as_json:
        asked["output"] = "json"
    request = app.CheckRequest(path or (Path("."),), **asked)
    if request.unsafe and not fix and not diff:
        raise click.UsageError("--unsafe-fixes goes with --fix or --diff")
    if diff and (request.statistics or request.output != "full"):
        raise click.UsageError("--diff has a form of its own; leave --format, --json and --statistics out")
    if request.run is not None and (fix or diff):
        raise click.UsageError("--run ranks findings; leave --fix and --diff out")
    obstacles: tuple[Message | str, ...]
    if diff:
        changes, words, report, obstacles = app.run_check_diff(request)
        text: str | bytes = changes
        code = 1 if changes else 0
    else:
        if fix:
            text, report, obstacles = app.run_check_fix(request)
        else:
            text, report = app.run_check(request)
            obstacles = report.notices
        words, code = "", 1 if any(finding.severity != "hint" for finding in report.findings) else 0
    if not quiet:
        click.echo(text, nl=False)
        click.echo(words, nl=False, err=True)
        _complain(report, verbose, obstacles)
    return code


def _split(words: tuple[str, ...]) -> list[str]:
    return [code.strip() for word in words for code in word.split(",") if code.strip()]


def _complain(report: CheckReport, verbose: bool, obstacles: tuple[Message | str, ...]) -> None:
    trouble = report.trouble
    for line in (*obstacles, *(trouble if verbose else ())):
        click.echo(f"flatout: {english(line)}".encode(errors="surrogateescape"), err=True)
    if not report.files and not trouble:
        click.echo("flatout: no Python file or notebook found there", err=True)
    if trouble and not verbose:
        click.echo(f"flatout: {len(trouble)} files or problems were passed over (-v names them)", err=True)


@click.command()
@click.argument("code", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.option(
    "--lang", "language", default="en", metavar="en|zh", help="Language: zh has problems in short, in Chinese."
)
def explain(code: str | None, as_json: bool, language: str) -> None:
    """Explain one problem of the catalogue or one remedy, or list them all.

    CODE is a code (IN101), a name (no-workers) or a remedy (loader.workers).
    """
    from flatout.app.explain import list_catalogue, run_explain

    click.echo(run_explain(code, as_json, language) if code else list_catalogue(as_json, language))

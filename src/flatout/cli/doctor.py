"""Say what this machine and its torch offer, and what is missing."""

from __future__ import annotations

import dataclasses
import json as json_module
import os
from pathlib import Path

import click

from flatout.cli.options import resolve
from flatout.errors import FlatoutError

_MARKS = {
    "ok": ("ok", "green"),
    "warn": ("warn", "yellow"),
    "missing": ("missing", "yellow"),
    "broken": ("broken", "red"),
}


@click.command()
@click.option("--python", metavar="PATH", help="Interpreter to examine (default: flatout's own).")
@click.option(
    "--json", "json", metavar="FILE", is_flag=False, flag_value="-", help="Write it as JSON ('-': to stdout)."
)
@click.option("-q", "--quiet", is_flag=True, help="Only what is not in order.")
@click.option("-v", "--verbose", is_flag=True, help="No difference yet; accepted as everywhere.")
def doctor(python: str | None, json: str | None, quiet: bool, verbose: bool) -> int:
    """Say what this machine and its torch offer, and what is missing.

    Starts a child interpreter to see whether flatout really reaches it. Exit code 1 if something essential is broken.
    """
    from flatout.app.doctor import Check, run_doctor

    if json is not None and not Path(json).parent.is_dir():
        raise FlatoutError(f"--json {json!r} cannot be written: there is no such folder")
    chosen = resolve({"python": python}, os.environ, Path.cwd()).get("python")
    checks = run_doctor(None if chosen is None else str(chosen), Path.cwd())
    code = 1 if any(check.state == "broken" for check in checks) else 0

    def line(check: Check) -> str:
        word, colour = _MARKS[check.state]
        mark = click.style(f"{word:<8}", fg=colour, bold=True)
        advice = f"\n{' ' * 20}{click.style(check.advice, dim=True)}" if check.advice and check.state != "ok" else ""
        return f" {mark}{check.name:<11}{check.value}{advice}"

    if json is not None:
        result = {"schema": 1, "ok": code == 0, "checks": [dataclasses.asdict(check) for check in checks]}
        text = json_module.dumps(result, indent=2) + "\n"
        if json == "-":
            click.echo(text, nl=False)
            return code
        Path(json).write_text(text, encoding="utf-8")
    for check in checks:
        if not quiet or check.state != "ok":
            click.echo(line(check), color=False if os.environ.get("NO_COLOR") else None)
    return code

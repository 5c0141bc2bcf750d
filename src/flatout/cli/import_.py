"""Store a run that came as one file from `flatout export bundle`."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path

import click


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--root", metavar="DIR", type=click.Path(path_type=Path), help="Where to (default: .flatout/runs).")
@click.option("--name", metavar="NAME", help="Name of the run here (default: the one it has).")
@click.option("--max-gb", type=float, metavar="N", help="Refuse what unpacks to more than this (default: 4.3).")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing.")
@click.option("-v", "--verbose", is_flag=True, help="No difference yet; accepted as everywhere.")
def import_(
    file: Path, root: Path | None, name: str | None, max_gb: float | None, as_json: bool, quiet: bool, verbose: bool
) -> None:
    """Store a run that came as one file from `flatout export bundle`.

    Safe for files from strangers: the whole file is looked through before anything is written, only the files that a
    run has are let in, none of them is ever executed, and its verdict is made anew from its records.
    """
    # Imported here, because completion and --help have no need of it.
    from flatout.app.bundle import import_bundle

    run = import_bundle(file, root, name, max_gb)
    if as_json:
        click.echo(jsonlib.dumps({"schema": 1, "id": run.id, "path": str(run.path)}, indent=2))
    elif not quiet:
        click.echo(f"imported as {run.id}; `flatout diagnose {run.path}` shows it")

"""Judge a stored run again: what bounds it, and what to fix first."""

from __future__ import annotations

import click


@click.command()
@click.argument("run", required=False)
@click.option("--json", "json", metavar="FILE", help="Also write the result as JSON ('-': to stdout).")
@click.option("--checklist", "as_checklist", is_flag=True, help="Tick what a well-run training meets, with figures.")
@click.option("-q", "--quiet", is_flag=True, help="Nothing but the JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Show every phase, line, finding and notice.")
def diagnose(run: str | None, json: str | None, as_checklist: bool, quiet: bool, verbose: bool) -> int:
    """Judge a stored run again: what bounds it, and what to fix first.

    RUN is its folder, its id or the beginning of it (see `flatout runs`); the latest if none is given. Needs neither
    torch nor a GPU.
    """
    # Imported here, because completion and --help have no need of it.
    from flatout.app.diagnose import run_diagnose

    return run_diagnose(run, as_checklist=as_checklist, json_file=json, quiet=quiet, verbose=verbose)

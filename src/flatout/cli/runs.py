"""List the stored runs, or tidy them up."""

from __future__ import annotations

import json as jsonlib
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flatout.app.runs import list_runs, prune_runs
from flatout.report.text import clean
from flatout.store.run import RunLine


@click.command()
@click.option("--root", metavar="DIR", type=click.Path(path_type=Path), help="Where to look (default: .flatout/runs).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--prune", is_flag=True, help="Delete runs: with --keep, --older-than, or both.")
@click.option("--keep", type=int, metavar="N", help="With --prune: never the N newest.")
@click.option("--older-than", metavar="AGE", help="With --prune: only those older than 12h, 7d, 2w …")
def runs(root: Path | None, as_json: bool, prune: bool, keep: int | None, older_than: str | None) -> None:
    """List the stored runs, or tidy them up.

    A run that is still being recorded is never deleted.
    """
    if not prune and (keep is not None or older_than is not None):
        raise click.UsageError("--keep and --older-than go with --prune")
    if prune:
        gone = prune_runs(root, keep, older_than)
        if as_json:
            click.echo(jsonlib.dumps({"pruned": gone}, indent=2))
        else:
            click.echo(f"{len(gone)} run{'' if len(gone) == 1 else 's'} deleted")
        return
    lines = list_runs(root)
    if as_json:
        click.echo(jsonlib.dumps({"schema": 1, "runs": [asdict(line) for line in lines]}, indent=2))
    elif not lines:
        click.echo("no runs here yet; `flatout run train.py` makes one")
    else:
        _print_table(lines)


def _print_table(lines: Sequence[RunLine]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("run", no_wrap=True)
    table.add_column("when", no_wrap=True)
    table.add_column("script", min_width=6, overflow="ellipsis")
    for name in ("steps", "samples/s", "exit"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    for line in lines:
        table.add_row(
            escape(clean(line.id)),
            _when(line.started_unix_s),
            # A name with brackets in it is no markup.
            escape(clean(line.script)),
            "–" if line.steps is None else str(line.steps),
            "–" if line.samples_per_s is None else f"{line.samples_per_s:.4g}",
            line.state if line.exit_code is None else str(line.exit_code),
            _verdict(line),
            _size(line.size_bytes),
        )
    console = Console(highlight=False)
    # In a pipe there is no edge to fit into.
    Console(highlight=False, width=None if console.is_terminal else 200).print(table)


def _when(unix_s: float | None) -> str:
    """How long ago, in the largest unit."""
    if unix_s is None:
        return "–"
    ago_s = max(0.0, time.time() - unix_s)
    for unit, length_s in (("d", 86400), ("h", 3600), ("m", 60)):
        if ago_s >= length_s:
            return f"{ago_s / length_s:.0f} {unit} ago"
    return f"{ago_s:.0f} s ago"


def _verdict(line: RunLine) -> str:
    if line.problem is not None:
        return "unreadable"
    if line.bound is None:
        return "–"
    return "healthy" if line.healthy else line.bound


def _size(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("B", "KB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"

"""Verbs about this machine: what it offers, and what fits into its memory."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import click

from flatout.cli.options import chosen
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
    from flatout.launch.terminal import write_json

    if json is not None and not Path(json).parent.is_dir():
        raise FlatoutError(f"--json {json!r} cannot be written: there is no such folder")
    checks = run_doctor(chosen(python=python).get("python"), Path.cwd())
    code = 1 if any(check.state == "broken" for check in checks) else 0

    def line(check: Check) -> str:
        word, colour = _MARKS[check.state]
        mark = click.style(f"{word:<8}", fg=colour, bold=True)
        advice = f"\n{' ' * 20}{click.style(check.advice, dim=True)}" if check.advice and check.state != "ok" else ""
        return f" {mark}{check.name:<11}{check.value}{advice}"

    if json is not None:
        write_json(json, {"schema": 1, "ok": code == 0, "checks": [dataclasses.asdict(check) for check in checks]})
    if json == "-":
        return code
    for check in checks:
        if not quiet or check.state != "ok":
            click.echo(line(check), color=False if os.environ.get("NO_COLOR") else None)
    return code


@click.command()
@click.argument("run", required=False)
@click.option("--sample-bytes", metavar="SIZE", help="Of one sample as it leaves the dataset: 3.4MB, 512KiB …")
@click.option(
    "--shape", "shapes", multiple=True, metavar="SHAPE", help="Of a tensor in it: 3x720x1280:float32; repeat."
)
@click.option("--batch", type=int, metavar="N", help="Samples of a batch (default 1).")
@click.option("--workers", type=int, metavar="N", help="num_workers of one rank (default 0).")
@click.option("--prefetch", type=int, metavar="N", help="prefetch_factor (default 2).")
@click.option("--ranks", type=int, metavar="N", help="Training processes on this machine (default 1).")
@click.option("--cache", metavar="SIZE", help="What the dataset's cache may hold; one in every worker.")
@click.option(
    "--shared-cache", "cache_is_shared", is_flag=True, help="The cache is one for all processes of the machine."
)
@click.option("--dataset-len", type=int, metavar="N", help="Samples of the dataset.")
@click.option("--pin/--no-pin", "pinned", default=None, help="pin_memory.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print the safe setting only.")
@click.option("-v", "--verbose", is_flag=True, help="No difference yet; accepted as everywhere.")
def memory(run: str | None, as_json: bool, quiet: bool, verbose: bool, **asked: Any) -> int:
    """Say whether workers × prefetch × batch and a cache fit this machine's RAM and /dev/shm.

    RUN is a stored run whose loader and sample size are taken where you give none. Exit code 1 if it does not fit.
    """
    from flatout.app.memory import MemoryRequest, run_memory

    text, code = run_memory(run, MemoryRequest(**asked), as_json=as_json, quiet=quiet)
    click.echo(text, nl=False)
    return code

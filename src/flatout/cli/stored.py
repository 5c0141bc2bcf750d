"""Verbs about what is stored: runs and training logs, listed, judged again, compared, shown, handed on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flatout.cli.options import seconds_of

if TYPE_CHECKING:
    from flatout.store.run import RunLine

_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)
_quiet = click.option("-q", "--quiet", is_flag=True, help="No words, only the file.")
_run = click.argument("run", required=False)


def _into_folder(words: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    out = click.option("-o", "--out", "folder", type=_FOLDER, required=True, metavar="DIR", help=words)
    return lambda command: _run(out(_quiet(command)))


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
    from flatout.app.runs import list_runs, prune_runs

    if not prune and (keep is not None or older_than is not None):
        raise click.UsageError("--keep and --older-than go with --prune")
    if prune:
        gone = prune_runs(root, keep, None if older_than is None else seconds_of("--older-than", older_than))
        words = f"{len(gone)} run{'' if len(gone) == 1 else 's'} deleted"
        click.echo(json.dumps({"pruned": gone}, indent=2) if as_json else words)
        return
    lines = list_runs(root)
    if as_json:
        click.echo(json.dumps({"schema": 1, "runs": [asdict(line) for line in lines]}, indent=2))
    elif not lines:
        click.echo("no runs here yet; `flatout run train.py` makes one")
    else:
        _print_table(lines)


def _print_table(lines: Sequence[RunLine]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from flatout.report.text import clean

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


@click.command()
@_run
@click.option("--json", "json_file", metavar="FILE", help="Also write the result as JSON ('-': to stdout).")
@click.option("--checklist", "as_checklist", is_flag=True, help="Tick what a well-run training meets, with figures.")
@click.option("-q", "--quiet", is_flag=True, help="Nothing but the JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Show every phase, line, finding and notice.")
def diagnose(run: str | None, **asked: Any) -> int:
    """Judge a stored run again: what bounds it, and what to fix first.

    RUN is its folder, its id or the beginning of it (see `flatout runs`); the latest if none is given. Needs neither
    torch nor a GPU.
    """
    from flatout.app.runs import run_diagnose

    return run_diagnose(run, **asked)


@click.command()
@_run
@click.option("-o", "--out", "out", metavar="FILE", help="Where to write it (default: <run>.html; '-': to stdout).")
@click.option("--lang", "language", default="en", metavar="en|zh", help="Language it opens in; both are in the file.")
@click.option("-q", "--quiet", is_flag=True, help="No words, only the file.")
def report(run: str | None, out: str | None, language: str, quiet: bool) -> int:
    """One HTML file of a run or a fix: verdict, charts, findings, proof; opens anywhere, offline.

    RUN is a run's folder, its id or the beginning of it (see `flatout runs`), the latest if none is given; or the
    folder or fix.json of a `flatout fix`, which is in .flatout/fix. Needs neither torch nor a GPU.
    """
    from flatout.app.report import run_report

    return run_report(run, out=out, language=language, quiet=quiet)


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="RUN RUN...")
@click.option("--fail-below", metavar="PERCENT", help="Exit 1 if a run is surely slower than this, as -3%.")
@click.option("--root", metavar="DIR", type=click.Path(path_type=Path), help="Where to look (default: .flatout/runs).")
@click.option("--json", "json_file", metavar="FILE", help="Also write the result as JSON ('-': to stdout, alone).")
@click.option(
    "-o", "--out", "html", type=click.Path(path_type=Path), metavar="FILE", help="Also write it as one HTML file."
)
@click.option("--lang", "language", default="en", metavar="en|zh", help="Language the file opens in; both are in it.")
@click.option("-q", "--quiet", is_flag=True, help="Print the verdicts only.")
@click.option("-v", "--verbose", is_flag=True, help="No difference yet; accepted as everywhere.")
def compare(names: tuple[str, ...], verbose: bool, **asked: Any) -> int:
    """Compare stored runs of the same script: speed with its interval, phases, settings, findings.

    RUN is a run's folder, its id or the beginning of it (see `flatout runs`), or "last"; all others are compared with
    the first. Several runs of one command, joined by commas (A1,A2 B1,B2), are taken together: only they show what one
    process differs by from the next; with one run each, 1% is assumed. Batches of different size are compared by
    samples/s.

    --fail-below -3% is for continuous integration: exit code 1 if a run is surely more than 3% slower than the first,
    that is if the upper end of the 95% interval of the ratio of rates is below 0.97, of all the time there was or of
    the training without evaluations and checkpoints. 0 if not, also where too little was run to be sure; 2 if it could
    not be compared.
    """
    from flatout.app.compare import CompareRequest, run_compare

    if len(names) < 2:
        raise click.UsageError(f"compare needs at least two runs, got {names[0]!r}")
    text, code = run_compare(CompareRequest(names, **asked))
    click.echo(text, nl=False)
    return code


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("file2", type=click.Path(path_type=Path), required=False)
@click.option("--pattern", metavar="REGEX", help="How to read other logs: named groups step, its, samples, time …")
@click.option(
    "--batch-size", "batch_sizes", type=float, multiple=True, metavar="N", help="Samples of a step; again for FILE2."
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print the verdict only.")
@click.option("-v", "--verbose", is_flag=True, help="Name every pause.")
def logs(file: Path, file2: Path | None, **asked: Any) -> None:
    """Read a training log: pace, pauses and trend; two logs are compared by samples/s.

    Knows tqdm, mmcv, Lightning, Hugging Face, KAIR, timm, JSON lines and key=value. For others give --pattern with
    named groups: step, its (steps/s), samples (samples/s), time and data_time (seconds a step), loss, batch.
    """
    from flatout.app.runs import LogsRequest, run_logs

    files = [file] if file2 is None else [file, file2]
    click.echo(run_logs(LogsRequest(files, **asked)), nl=False)


@click.group()
def export() -> None:
    """Hand a stored run on: a bundle, a trace, tables, SARIF, or scalars for other tools.

    RUN is a run's folder, its id or the beginning of it (see `flatout runs`); the latest if none is given.
    """


@export.command()
@_run
@click.option("-o", "--out", "file", type=_FILE, metavar="FILE", help="Default: <run>.flatout.tar.gz here.")
@_quiet
def bundle(run: str | None, file: Path | None, quiet: bool) -> None:
    """The whole run as one file, for `flatout import`.

    It holds what is stored and nothing else: the command line without its secrets, figures, names of files and hosts,
    and the text of the slowest lines. `tar -tzf FILE` lists it.
    """
    from flatout.app.export import export_bundle

    written, size = export_bundle(run, file)
    if not quiet:
        click.echo(f"{written} ({size / 1e6:.2f} MB); `flatout import {written.name}` takes it in elsewhere")


@export.command()
@_run
@click.option("--steps", metavar="A:B", help="From 1, both included (default: the slowest, a typical one, neighbours).")
@click.option("-o", "--out", "file", type=_FILE, default="trace.json", show_default=True, metavar="FILE")
@_quiet
def trace(run: str | None, steps: str | None, file: Path, quiet: bool) -> None:
    """Some steps, for ui.perfetto.dev or chrome://tracing.

    Every rank with its steps and their phases, pauses, loaders, what the device did in sampled steps, waits and copies
    a step, workers, and what was sampled of GPU, CPU and memory meanwhile.
    """
    from flatout.app.export import export_trace

    shown, size = export_trace(run, steps, file)
    if not quiet:
        click.echo(f"{file} ({size / 1e6:.2f} MB): steps {shown}; open it at ui.perfetto.dev")


@export.command()
@_into_folder("Made where it is not there.")
def csv(run: str | None, folder: Path, quiet: bool) -> None:
    """Every step and every sample as CSV, a file for each table.

    steps.csv has a row a step (several steps a row in a very long run) with its phases in milliseconds; telemetry_gpu
    and the like what was sampled. Times are seconds since the recording began; what was not measured is empty.
    """
    _tables(run, folder, as_parquet=False, quiet=quiet)


@export.command()
@_into_folder("Made where it is not there.")
def parquet(run: str | None, folder: Path, quiet: bool) -> None:
    """The same tables as Parquet; needs pyarrow."""
    _tables(run, folder, as_parquet=True, quiet=quiet)


def _tables(run: str | None, folder: Path, as_parquet: bool, quiet: bool) -> None:
    from flatout.app.export import export_tables

    for file in export_tables(run, folder, as_parquet):
        if not quiet:
            click.echo(f"{file} ({file.stat().st_size / 1e6:.2f} MB)")


@export.command()
@_run
@click.option("-o", "--out", "file", type=_FILE, metavar="FILE", help="Default: to stdout.")
def sarif(run: str | None, file: Path | None) -> None:
    """Findings that have a place in the source, as SARIF.

    For code scanning. Findings without a place are told as notifications.
    """
    from flatout.app.export import export_sarif

    click.echo(export_sarif(run, file), nl=False)


@export.command()
@_into_folder("`tensorboard --logdir DIR`.")
def tensorboard(run: str | None, folder: Path, quiet: bool) -> None:
    """Scalars for TensorBoard, if it is installed.

    Rates, phases in milliseconds a step, and what was sampled of GPU and host.
    """
    _metrics(run, "tensorboard", folder, quiet)


@export.command()
@_into_folder("`wandb sync DIR/wandb/…`.")
def wandb(run: str | None, folder: Path, quiet: bool) -> None:
    """The same for Weights & Biases, as an offline run.

    Nothing leaves this machine before you call `wandb sync`.
    """
    _metrics(run, "wandb", folder, quiet)


@export.command()
@_into_folder("A tracking folder (mlruns).")
def mlflow(run: str | None, folder: Path, quiet: bool) -> None:
    """The same for MLflow, as a tracking folder of files."""
    _metrics(run, "mlflow", folder, quiet)


def _metrics(run: str | None, tool: str, folder: Path, quiet: bool) -> None:
    from flatout.app.export import export_metrics

    count = export_metrics(run, tool, folder)
    if not quiet:
        click.echo(f"{count} curves written to {folder}")


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--root", metavar="DIR", type=click.Path(path_type=Path), help="Where to (default: .flatout/runs).")
@click.option("--name", metavar="NAME", help="Name of the run here (default: the one it has).")
@click.option(
    "--max-gb", "most_gb", type=float, metavar="N", help="Refuse what unpacks to more than this (default: 4.3)."
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing.")
@click.option("-v", "--verbose", is_flag=True, help="No difference yet; accepted as everywhere.")
def import_(as_json: bool, quiet: bool, verbose: bool, **asked: Any) -> None:
    """Store a run that came as one file from `flatout export bundle`.

    Safe for files from strangers: the whole file is looked through before anything is written, only the files that a
    run has are let in, none of them is ever executed, and its verdict is made anew from its records.
    """
    from flatout.app.export import import_bundle

    run = import_bundle(**asked)
    if as_json:
        click.echo(json.dumps({"schema": 1, "id": run.id, "path": str(run.path)}, indent=2))
    elif not quiet:
        click.echo(f"imported as {run.id}; `flatout diagnose {run.path}` shows it")

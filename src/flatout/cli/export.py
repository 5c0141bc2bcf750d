"""Hand a stored run on: a bundle, a trace, tables, SARIF, or scalars for other tools."""

from __future__ import annotations

from pathlib import Path

import click

_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)
_quiet = click.option("-q", "--quiet", is_flag=True, help="No words, only the file.")


@click.group()
def export() -> None:
    """Hand a stored run on: a bundle, a trace, tables, SARIF, or scalars for other tools.

    RUN is a run's folder, its id or the beginning of it (see `flatout runs`); the latest if none is given.
    """


@export.command()
@click.argument("run", required=False)
@click.option("-o", "--out", "file", type=_FILE, metavar="FILE", help="Default: <run>.flatout.tar.gz here.")
@_quiet
def bundle(run: str | None, file: Path | None, quiet: bool) -> None:
    """The whole run as one file, for `flatout import`.

    It holds what is stored and nothing else: the command line without its secrets, figures, names of files and hosts,
    and the text of the slowest lines. `tar -tzf FILE` lists it.
    """
    from flatout.app.bundle import export_bundle

    written, size = export_bundle(run, file)
    if not quiet:
        click.echo(f"{written} ({size / 1e6:.2f} MB); `flatout import {written.name}` takes it in elsewhere")


@export.command()
@click.argument("run", required=False)
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
@click.argument("run", required=False)
@click.option("-o", "--out", "folder", type=_FOLDER, required=True, metavar="DIR", help="Made where it is not there.")
@_quiet
def csv(run: str | None, folder: Path, quiet: bool) -> None:
    """Every step and every sample as CSV, a file for each table.

    steps.csv has a row a step (several steps a row in a very long run) with its phases in milliseconds; telemetry_gpu
    and the like what was sampled. Times are seconds since the recording began; what was not measured is empty.
    """
    _tables(run, folder, as_parquet=False, quiet=quiet)


@export.command()
@click.argument("run", required=False)
@click.option("-o", "--out", "folder", type=_FOLDER, required=True, metavar="DIR", help="Made where it is not there.")
@_quiet
def parquet(run: str | None, folder: Path, quiet: bool) -> None:
    """The same tables as Parquet; needs pyarrow."""
    _tables(run, folder, as_parquet=True, quiet=quiet)


def _tables(run: str | None, folder: Path, as_parquet: bool, quiet: bool) -> None:
    from flatout.app.export import export_tables

    for file in export_tables(run, folder, as_parquet):
        if not quiet:
            click.echo(f"{file} ({file.stat().st_size / 1e6:.2f} MB)")


@export.command()
@click.argument("run", required=False)
@click.option("-o", "--out", "file", type=_FILE, metavar="FILE", help="Default: to stdout.")
def sarif(run: str | None, file: Path | None) -> None:
    """Findings that have a place in the source, as SARIF.

    For code scanning. Findings without a place are told as notifications.
    """
    from flatout.app.export import export_sarif, open_atomic

    text = export_sarif(run)
    if file is None:
        click.echo(text, nl=False)
    else:
        with open_atomic(file) as temporary:
            temporary.write_text(text, encoding="utf-8")


@export.command()
@click.argument("run", required=False)
@click.option("-o", "--out", "folder", type=_FOLDER, required=True, metavar="DIR", help="`tensorboard --logdir DIR`.")
@_quiet
def tensorboard(run: str | None, folder: Path, quiet: bool) -> None:
    """Scalars for TensorBoard, if it is installed.

    Rates, phases in milliseconds a step, and what was sampled of GPU and host.
    """
    _metrics(run, "tensorboard", folder, quiet)


@export.command()
@click.argument("run", required=False)
@click.option("-o", "--out", "folder", type=_FOLDER, required=True, metavar="DIR", help="`wandb sync DIR/wandb/…`.")
@_quiet
def wandb(run: str | None, folder: Path, quiet: bool) -> None:
    """The same for Weights & Biases, as an offline run.

    Nothing leaves this machine before you call `wandb sync`.
    """
    _metrics(run, "wandb", folder, quiet)


@export.command()
@click.argument("run", required=False)
@click.option("-o", "--out", "folder", type=_FOLDER, required=True, metavar="DIR", help="A tracking folder (mlruns).")
@_quiet
def mlflow(run: str | None, folder: Path, quiet: bool) -> None:
    """The same for MLflow, as a tracking folder of files."""
    _metrics(run, "mlflow", folder, quiet)


def _metrics(run: str | None, tool: str, folder: Path, quiet: bool) -> None:
    from flatout.app.export import export_metrics

    count = export_metrics(run, tool, folder)
    if not quiet:
        click.echo(f"{count} curves written to {folder}")

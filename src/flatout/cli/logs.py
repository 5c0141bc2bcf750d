"""Read a training log: pace, pauses and trend; two logs are compared by samples/s."""

from __future__ import annotations

from pathlib import Path

import click


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
def logs(
    file: Path,
    file2: Path | None,
    pattern: str | None,
    batch_sizes: tuple[float, ...],
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Read a training log: pace, pauses and trend; two logs are compared by samples/s.

    Knows tqdm, mmcv, Lightning, Hugging Face, KAIR, timm, JSON lines and key=value. For others give --pattern with
    named groups: step, its (steps/s), samples (samples/s), time and data_time (seconds a step), loss, batch.
    """
    # Imported here, because completion and --help have no need of it.
    from flatout.app.logs import LogsRequest, run_logs

    files = [file] if file2 is None else [file, file2]
    click.echo(run_logs(LogsRequest(files, pattern, batch_sizes, as_json, quiet, verbose)), nl=False)

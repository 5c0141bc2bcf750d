"""Say whether workers × prefetch × batch and a cache fit this machine's RAM and /dev/shm."""

from __future__ import annotations

import click


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
@click.option("--shared-cache", is_flag=True, help="The cache is one for all processes of the machine.")
@click.option("--dataset-len", type=int, metavar="N", help="Samples of the dataset.")
@click.option("--pin/--no-pin", "pinned", default=None, help="pin_memory.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print the safe setting only.")
@click.option("-v", "--verbose", is_flag=True, help="No difference yet; accepted as everywhere.")
def memory(
    run: str | None,
    sample_bytes: str | None,
    shapes: tuple[str, ...],
    batch: int | None,
    workers: int | None,
    prefetch: int | None,
    ranks: int | None,
    cache: str | None,
    shared_cache: bool,
    dataset_len: int | None,
    pinned: bool | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Say whether workers × prefetch × batch and a cache fit this machine's RAM and /dev/shm.

    RUN is a stored run whose loader and sample size are taken where you give none. Exit code 1 if it does not fit.
    """
    # Imported here, because completion and --help have no need of it.
    from flatout.app.memory import MemoryRequest, run_memory

    asked = MemoryRequest(
        sample_bytes, shapes, batch, workers, prefetch, ranks, cache, shared_cache, dataset_len, pinned
    )
    text, code = run_memory(run, asked, as_json=as_json, quiet=quiet)
    click.echo(text, nl=False)
    return code

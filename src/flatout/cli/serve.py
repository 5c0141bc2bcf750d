"""Show runs in the browser, live while they go on."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option("--port", type=int, metavar="N", help="Port to listen on (default: 8765, or the next free one).")
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="An address of this machine alone (127.0.0.1).")
@click.option("--root", metavar="DIR", type=click.Path(path_type=Path), help="Where to look (default: .flatout/runs).")
@click.option("--json", "as_json", is_flag=True, help="Print the address as one line of JSON, to stdout.")
def serve(port: int | None, host: str, root: Path | None, as_json: bool) -> None:
    """Show runs in the browser, live while they go on.

    Prints an address with a token in it: who has not got the token sees nothing. It listens on this machine alone; the
    ssh line that is printed too brings it to another one. Recordings are only read, so a run does not notice. Ctrl-C
    ends it. `flatout run --serve train.py` shows one run for as long as it lasts.
    """
    from flatout.app.serve import run_serve

    run_serve(host, port, root, as_json)

"""`flatout serve`: the dashboard of all runs, until Ctrl-C."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from flatout.app.serving.address import listen
from flatout.app.serving.shelf import Shelf
from flatout.app.terminal import say


def serve_runs(host: str, port: int | None, root: Path | None, as_json: bool) -> None:
    """Show all runs under `root` until Ctrl-C."""
    address = listen(host, port)
    if as_json:
        sys.stdout.write(json.dumps({"schema": 1, "url": address.url(), "port": address.port}) + "\n")
        sys.stdout.flush()
    else:
        say(address.invitation())
    from flatout.app.serving.server import serve  # brings starlette and uvicorn in: `listen` has looked for them

    try:
        serve(address, Shelf(root))
    except KeyboardInterrupt:
        pass

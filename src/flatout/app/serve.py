"""`flatout serve`: the dashboard of all runs, until Ctrl-C."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from flatout.dashboard.address import listen
from flatout.dashboard.companion import give_way
from flatout.dashboard.run_list import RunList
from flatout.launch.terminal import write_stderr


def run_serve(host: str, port: int | None, root: Path | None, as_json: bool) -> None:
    """Show all runs under `root` until Ctrl-C."""
    address = listen(host, port)
    if as_json:
        sys.stdout.write(json.dumps({"schema": 1, "url": address.url(), "port": address.port}) + "\n")
        sys.stdout.flush()
    else:
        write_stderr(address.invitation())
    from flatout.dashboard.server import serve  # brings starlette and uvicorn in: `listen` has looked for them

    give_way()
    try:
        serve(address, RunList(root))
    except KeyboardInterrupt:
        pass

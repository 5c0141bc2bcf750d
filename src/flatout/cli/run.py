"""Watch a training script, unmodified, and say where each step's time went."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flatout.cli.options import UpToTheScript, resolve
from flatout.errors import FlatoutError

if TYPE_CHECKING:
    from flatout.dashboard.companion import Companion
    from flatout.launch.metrics_server import MetricsServer
    from flatout.launch.profile import Profile


@click.command(
    cls=UpToTheScript,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS] [--]",
)
@click.option("--out", metavar="DIR", help="File the run in DIR instead of .flatout/runs/<id>.")
@click.option("--json", "json", metavar="FILE", help="Also write the result as JSON ('-': to stdout).")
@click.option("--python", metavar="PATH", help="Interpreter for a bare script or -m (default: flatout's own).")
@click.option("--name", metavar="NAME", help="Name of the run (default: the script's).")
@click.option("--interval", type=float, metavar="S", help="Seconds between two looks at GPU and host (default: 0.2).")
@click.option("--telemetry/--no-telemetry", default=None, help="Sample GPU and host (default: yes).")
@click.option("--lines/--no-lines", default=None, help="Find the slow lines of your code (default: yes).")
@click.option("--stages/--no-stages", default=None, help="Time the parts of your model in sampled steps (default: no).")
@click.option("--live/--no-live", default=None, help="Full screen while it runs (default: one line).")
@click.option("--with", "profile", metavar="FILE", help="Apply the remedies of this profile (flatout.toml).")
@click.option("--remedy", "remedies", multiple=True, metavar="ID=VALUE", help="Apply a remedy, as loader.workers=8.")
@click.option("--throttle", multiple=True, metavar="MODULE:FUNCTION=N", help="Call it only every N steps: a viewer.")
@click.option("--serve", is_flag=True, help="Show the run in the browser while it goes on, from a process of its own.")
@click.option("--port", type=int, metavar="N", help="With --serve: port to listen on (default: 8765 or the next free).")
@click.option("--metrics-port", type=int, metavar="N", help="Figures for Prometheus at 127.0.0.1:N (0: any free port).")
@click.option("-q", "--quiet", is_flag=True, default=None, help="No live line and no verdict.")
@click.option("-v", "--verbose", is_flag=True, default=None, help="Show every phase, line and notice.")
@click.argument("cmd", nargs=-1, type=click.UNPROCESSED, required=True, metavar="CMD [ARGS]...")
def run(
    cmd: tuple[str, ...],
    profile: str | None,
    remedies: tuple[str, ...],
    throttle: tuple[str, ...],
    serve: bool,
    port: int | None,
    metrics_port: int | None,
    **flags: str | float | bool | None,
) -> int:
    """Watch a training script, unmodified, and say where each step's time went.

    CMD is a script (train.py), a module (-m pkg.train) or any command that starts Python (python -u train.py,
    torchrun --nproc-per-node 2 train.py, accelerate launch train.py). All that follows its first word is passed on
    untouched, and the exit code is the script's. The verdict goes to stderr; stdout holds what the script printed.
    """
    # Imported here, because completion and --help have no need of it.
    from flatout.app.run import RunOptions, run_command

    values = resolve(flags, os.environ, Path.cwd())
    interval_s = float(values.pop("interval", 0.2))
    if not 0.01 <= interval_s <= 3600:
        raise FlatoutError(f"--interval must be between 0.01 and 3600 seconds, got {interval_s:g}")
    texts = {k: str(v) for k, v in values.items() if isinstance(v, str)}
    return run_command(
        cmd,
        RunOptions(
            out=Path(texts["out"]) if "out" in texts else None,
            json=texts.get("json"),
            python=texts.get("python"),
            name=texts.get("name"),
            interval_s=interval_s,
            telemetry=bool(values.get("telemetry", True)),
            lines=bool(values.get("lines", True)),
            stages=bool(values.get("stages", False)),
            live=bool(values.get("live", False)),
            quiet=bool(values.get("quiet", False)),
            verbose=bool(values.get("verbose", False)),
            profile=_profile(profile, remedies, throttle),
            companion=_companion(serve, port),
            exposed=_exposed(metrics_port, quiet=bool(values.get("quiet", False))),
        ),
    )


def _companion(serve: bool, port: int | None) -> Companion | None:
    """Listens before the script starts: what is wrong with the port is said at once."""
    if not serve:
        if port is not None:
            raise FlatoutError(f"--port {port} goes with --serve")
        return None
    from flatout.dashboard.address import listen
    from flatout.dashboard.companion import Companion

    return Companion(listen(port=port))


def _exposed(port: int | None, quiet: bool) -> MetricsServer | None:
    """Listens before the script starts, for the same reason."""
    if port is None:
        return None
    from flatout.launch.metrics_server import MetricsServer

    exposed = MetricsServer(port)
    if not quiet:
        click.echo(f"flatout: metrics at {exposed.address}", err=True)
    return exposed


def _profile(file: str | None, words: tuple[str, ...], throttled: tuple[str, ...]) -> Profile | None:
    if throttled:
        # "every 50 steps" reads better than 50, and means the same.
        plain = (re.sub(r"=\s*every\s+(\d+)(\s+steps?)?$", r"=\1", word.strip()) for word in throttled)
        words = (*words, f"cadence.throttle={','.join(plain)}")
    if file is None and not words:
        return None  # most runs: the remedies are not even imported
    from flatout.launch.profile import read_profile

    return read_profile(Path(file) if file is not None else None, words)

"""Verbs that watch what runs: a script, a bundled one, anything on this machine; and all runs in the browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flatout.cli.options import chosen, script_command, seconds_of
from flatout.errors import FlatoutError

if TYPE_CHECKING:
    from flatout.dashboard.companion import Companion
    from flatout.launch.metrics_server import MetricsServer
    from flatout.launch.process import LookLimit
    from flatout.launch.profile import Profile

_PATH = click.Path(path_type=Path)


@script_command()
@click.option("--out", metavar="DIR", help="File the run in DIR instead of .flatout/runs/<id>.")
@click.option("--json", "json", metavar="FILE", help="Also write the result as JSON ('-': to stdout).")
@click.option("--python", metavar="PATH", help="Interpreter for a bare script or -m (default: flatout's own).")
@click.option("--name", metavar="NAME", help="Name of the run (default: the script's).")
@click.option("--interval", type=float, metavar="S", help="Seconds between two looks at GPU and host (default: 0.2).")
@click.option("--telemetry/--no-telemetry", default=None, help="Sample GPU and host (default: yes).")
@click.option("--lines/--no-lines", default=None, help="Find the slow lines of your code (default: yes).")
@click.option("--stages/--no-stages", default=None, help="Time the parts of your model in sampled steps (default: no).")
@click.option("--window/--no-window", default=None, help="Link backward to lines, in a few steps (default: yes).")
@click.option("--live/--no-live", default=None, help="Full screen while it runs (default: one line).")
@click.option("--steps", metavar="N", help="End the script after N optimizer steps, as Ctrl-C would; exit code 0.")
@click.option("--for", "time", metavar="TIME", help="The same, so long after its first step: 60s, 2m (90: seconds).")
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
    steps: str | None,
    time: str | None,
    **flags: str | float | bool | None,
) -> int:
    """Watch a training script, unmodified, and say where each step's time went.

    CMD is a script (train.py), a module (-m pkg.train) or any command that starts Python (python -u train.py,
    torchrun --nproc-per-node 2 train.py, accelerate launch train.py). All that follows its first word is passed on
    untouched, and the exit code is the script's. The verdict goes to stderr; stdout holds what the script printed.
    """
    from flatout.app.run import RunOptions, run_command

    values = chosen(**flags)
    interval_s = values.pop("interval", 0.2)
    if not 0.01 <= interval_s <= 3600:
        raise FlatoutError(f"--interval must be between 0.01 and 3600 seconds, got {interval_s:g}")
    out = values.pop("out", None)
    options = RunOptions(
        out=Path(out) if out else None,
        interval_s=interval_s,
        profile=_profile(profile, remedies, throttle),
        companion=_companion(serve, port),
        exposed=_exposed(metrics_port, quiet=values.get("quiet", False)),
        limit=_limit(steps, time),
        **values,
    )
    return run_command(cmd, options)


def _limit(steps: str | None, time: str | None) -> LookLimit | None:
    if steps is None and time is None:
        return None
    from flatout.launch.process import LookLimit

    if steps is not None and (not steps.isdecimal() or int(steps) < 1):
        raise FlatoutError(f"--steps must be a whole number above 0, got {steps!r}")
    seconds = None if time is None else seconds_of("--for", time, unit="s")
    return LookLimit(None if steps is None else int(steps), seconds)


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


@click.command()
@click.option("--interval", "interval_s", type=float, default=1.0, show_default=True, help="Seconds between readings.")
@click.option("--duration", "duration_s", type=float, help="Stop after so many seconds (default: until Ctrl-C).")
@click.option("--pid", type=int, help="Watch this process and its children too; end with it.")
@click.option("--csv", "csv_path", type=_PATH, help="Also write nvidia-smi's CSV, with more columns.")
@click.option("--read", "read_path", type=_PATH, help="Summarise such a CSV instead of watching.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON, and nothing else.")
@click.option("--metrics-port", type=int, metavar="N", help="Figures for Prometheus at 127.0.0.1:N (0: any free port).")
@click.option("-q", "--quiet", is_flag=True, help="Print the verdict only.")
def watch(**asked: Any) -> None:
    """Monitor the GPUs and the host of anything already running; mean ± spread and a verdict at the end.

    Utilisation says that some kernel ran, however small; so the verdict weighs its spread, power and SM activity too.
    """
    from flatout.app.watch import WatchRequest, run_watch

    run_watch(WatchRequest(**asked))


@click.command()
@click.argument("name", default="gray_cnn")
@click.option("--size", metavar="SIZE", help="tiny (seconds on a CPU) or full (default: full with a GPU).")
@click.option("--data", type=_PATH, metavar="DIR", help="Where its data is made and kept (default: your cache folder).")
@click.option("--out", type=_PATH, metavar="DIR", help="File the run in DIR instead of .flatout/runs/<id>.")
@click.option("--json", "json", metavar="FILE", help="Also write the result as JSON ('-': to stdout).")
@click.option("-q", "--quiet", is_flag=True, help="No words, only the exit code (and --json).")
@click.option("-v", "--verbose", is_flag=True, help="Show every phase, line and notice.")
@click.option("--fix/--no-fix", "fix", default=True, help="Go on from the verdict to the fix (default: yes).")
@click.option("--list", "show_list", is_flag=True, help="Tell the story of each workload.")
def demo(name: str, size: str | None, data: Path | None, fix: bool, show_list: bool, **options: Any) -> int:
    """Watch a bundled training project whose GPU sits idle, see why, and make it faster.

    NAME is one of the workloads of --list; gray_cnn if none is given. It makes its own data, trains for at most a
    minute, shows the verdict, then what `flatout fix` makes of it in two minutes more.
    """
    from flatout.app.demo import Choice, run_demo, tell_stories
    from flatout.app.run import RunOptions

    if show_list:
        click.echo(tell_stories(), nl=False)
        return 0
    return run_demo(Choice(name, size, data, fix=fix), RunOptions(**options))


@click.command()
@click.option("--port", type=int, metavar="N", help="Port to listen on (default: 8765, or the next free one).")
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="An address of this machine alone (127.0.0.1).")
@click.option("--root", metavar="DIR", type=_PATH, help="Where to look (default: .flatout/runs).")
@click.option("--json", "as_json", is_flag=True, help="Print the address as one line of JSON, to stdout.")
def serve(port: int | None, host: str, root: Path | None, as_json: bool) -> None:
    """Show runs in the browser, live while they go on.

    Prints an address with a token in it: who has not got the token sees nothing. It listens on this machine alone; the
    ssh line that is printed too brings it to another one. Recordings are only read, so a run does not notice. Ctrl-C
    ends it. `flatout run --serve train.py` shows one run for as long as it lasts.
    """
    from flatout.app.runs import run_serve

    run_serve(host, port, root, as_json)

"""Search batch size, workers, your own flags and config keys for the fastest training within limits you set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from flatout.cli.options import UpToTheScript, resolve
from flatout.errors import FlatoutError

_PRESETS = ("conservative", "balanced", "aggressive", "low-memory")


@click.command(
    cls=UpToTheScript,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS] [--]",
)
@click.option("--knob", "knobs", multiple=True, metavar="NAME=VALUES", help="What to turn; repeat. See above.")
@click.option(
    "--objective", type=click.Choice(("samples/s", "metric", "memory")), help="What decides (default: samples/s)."
)
@click.option("--metric", metavar="REGEX", help="Your quality, as printed: 'PSNR: ([0-9.]+)'.")
@click.option(
    "--higher/--lower", default=None, help="Is a higher metric better? (default: unless it is a loss or error)"
)
@click.option("--constraint", "constraints", multiple=True, metavar="LIMIT", help="As 'memory<70GB', 'metric>31'.")
@click.option("--preset", type=click.Choice(_PRESETS), help="Choose by what quality may be lost for speed or memory.")
@click.option("--steps", type=int, metavar="N", help="Steps of a full trial (default: as many as fill 5 s).")
@click.option(
    "--warm-up", type=int, default=10, metavar="N", help="Steps before these that do not count (default: 10)."
)
@click.option("--trials", type=int, metavar="N", help="Settings to try at most, where there are too many for all.")
@click.option("--budget", metavar="TIME", help="Begin no trial after so long: 90s, 10m, 1h (default: no limit).")
@click.option("--limit", metavar="TIME", help="What one trial may take at most (default: 10m).")
@click.option("--on", metavar="WHERE", help="Make the trials on a Ray cluster: ray, ray://host:port.")
@click.option("--with", "profile", metavar="FILE", help="Every trial has the remedies of this profile.")
@click.option("--remedy", "remedies", multiple=True, metavar="ID=VALUE", help="Every trial has this remedy.")
@click.option("--allow-writes", is_flag=True, help="Let trials write where the script writes, not to a scratch folder.")
@click.option("--fresh", is_flag=True, help="Begin anew instead of going on with trials made before.")
@click.option("--out", metavar="DIR", help="File the search in DIR instead of .flatout/tune/<name>.")
@click.option("--json", "json", metavar="FILE", help="Also write the result as JSON ('-': to stdout).")
@click.option("--python", metavar="PATH", help="Interpreter for a bare script or -m (default: flatout's own).")
@click.option("-q", "--quiet", is_flag=True, default=None, help="No progress and no table.")
@click.option("-v", "--verbose", is_flag=True, default=None, help="Name every setting that could not be used.")
@click.argument("cmd", nargs=-1, type=click.UNPROCESSED, required=True, metavar="CMD [ARGS]...")
def tune(cmd: tuple[str, ...], **given: Any) -> int:
    """Search batch size, workers, your own flags and config keys for the fastest training within limits you set.

    \b
    A knob is one of
      workers=auto  batch_size=4,8,16  prefetch=2,4  precision.bf16=on,off    a remedy
      '--window=8,7,6'  '--amp=present,absent'                               a flag of the script
      'config.yaml:MODEL.DEPTHS=[2,2],[4,4]'                                 a key of a config file it is given

    CMD is run for some steps under each setting, in a process of its own; what it writes goes to a scratch folder.
    Of config files, copies are used. A search that was cut off goes on where it was. The chosen setting, and one for
    each preset, is written as a profile, config copies and a command line. Exit code 1 if none can be used.
    """
    # Imported here, because completion and --help have no need of it.
    from flatout.app.tune import TuneOptions
    from flatout.app.tune import run_tune as search
    from flatout.launch.profile import read_profile

    flags = {name: given[name] for name in ("out", "json", "python", "quiet", "verbose")}
    values = resolve(flags, os.environ, Path.cwd())
    file, words = given["profile"], given["remedies"]
    return search(
        cmd,
        TuneOptions(
            knobs=given["knobs"],
            goal=given["objective"] or "samples/s",
            metric=given["metric"],
            higher=given["higher"],
            constraints=given["constraints"],
            preset=given["preset"],
            steps=_at_least("--steps", given["steps"], 4),
            warm_up=_at_least("--warm-up", given["warm_up"], 0) or 0,
            trials=_at_least("--trials", given["trials"], 1),
            budget_s=_seconds("--budget", given["budget"]),
            limit_s=_seconds("--limit", given["limit"]) or 600.0,
            on=given["on"],
            profile=read_profile(Path(file) if file else None, words) if file or words else None,
            allow_writes=given["allow_writes"],
            fresh=given["fresh"],
            # A run's own folder, as the files and FLATOUT_OUT may name one, is none for a search.
            out=Path(given["out"]) if given["out"] else None,
            json=str(values["json"]) if "json" in values else None,
            python=str(values["python"]) if "python" in values else None,
            quiet=bool(values.get("quiet", False)),
            verbose=bool(values.get("verbose", False)),
        ),
    )


def _at_least(name: str, value: int | None, least: int) -> int | None:
    if value is not None and value < least:
        raise FlatoutError(f"{name} must be at least {least}, got {value}")
    return value


def _seconds(name: str, text: str | None) -> float | None:
    if text is None:
        return None
    from flatout.app.runs import parse_duration_s

    try:
        found = parse_duration_s(text)
    except FlatoutError:
        raise FlatoutError(f"{name} must be a number with s, m or h, such as 10m; got {text!r}") from None
    if found <= 0:
        raise FlatoutError(f"{name} must be above 0, got {text!r}")
    return found

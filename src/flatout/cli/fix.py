"""Verbs that make trials of the user's script: for a profile, for a proof of one, and over knobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from flatout.cli.options import chosen, script_command, seconds_of
from flatout.errors import FlatoutError

_PRESETS = ("conservative", "balanced", "aggressive", "low-memory")


@script_command()
@click.option("--allow", multiple=True, metavar="CLASS", help="Also try remedies of this class: numeric, training.")
@click.option("--only", multiple=True, metavar="PATTERN", help="Try these remedies only, as 'loader.*'; repeat.")
@click.option("--without", multiple=True, metavar="PATTERN", help="Leave these remedies out; repeat.")
@click.option(
    "--budget", metavar="TIME", help="Time for all trials, as 90s, 10m, 1h (default: 10m, 5m where steps are quick)."
)
@click.option("--metric", metavar="REGEX", help="Your quality, as printed: 'PSNR: ([0-9.]+)'.")
@click.option("--higher/--lower", default=True, help="Is a higher metric better? (default: yes)")
@click.option("--dry-run", is_flag=True, help="Look at the script and show the plan; try nothing.")
@click.option("--apply", "edit", is_flag=True, help="Also make the changes of flatout.patch in the source.")
@click.option("--allow-writes", is_flag=True, help="Let trials write where the script writes, not to a scratch folder.")
@click.option("--fresh", is_flag=True, help="Do not go on with a search that was cut off.")
@click.option("-o", "--profile", "profile", metavar="FILE", help="Where to write the profile (default: flatout.toml).")
@click.option("--json", "json", metavar="FILE", help="Also write the result as JSON ('-': to stdout).")
@click.option("--python", metavar="PATH", help="Interpreter for a bare script or -m (default: flatout's own).")
@click.option("-q", "--quiet", is_flag=True, default=None, help="No progress and no table.")
@click.option("-v", "--verbose", is_flag=True, default=None, help="Also say what was not tried, and why.")
@click.argument("cmd", nargs=-1, type=click.UNPROCESSED, required=True, metavar="CMD [ARGS]...")
def fix(profile: str | None, budget: str | None, json: str | None, python: str | None, **asked: Any) -> int:
    """Make a training script fast without touching it, and prove it by measurement.

    CMD is run a dozen times or two for some steps, unmodified, in processes of their own; what it writes goes to a
    scratch folder. Remedies that measurably help are kept and written to flatout.toml, for
    `flatout run --with flatout.toml CMD`. Lossless ones must leave every loss the same, bit by bit; others are only
    tried if you allow them. Exit code 0 if something was kept, 1 if not.
    """
    from flatout.app.fix import FixOptions, run_fix

    shared = chosen(json=json, python=python, quiet=asked.pop("quiet"), verbose=asked.pop("verbose"))
    budget_s = None if budget is None else seconds_of("--budget", budget, "s")
    return run_fix(FixOptions(profile=Path(profile or "flatout.toml"), budget_s=budget_s, **asked, **shared))


@script_command("[OPTIONS]")
@click.option("--budget", default="5m", metavar="TIME", help="Time for all trials, as 90s, 10m, 1h (default: 5m).")
@click.option("--metric", metavar="REGEX", help="Your quality, as printed: 'PSNR: ([0-9.]+)'.")
@click.option("--higher/--lower", default=True, help="Is a higher metric better? (default: yes)")
@click.option("--allow-writes", is_flag=True, help="Let trials write where the script writes, not to a scratch folder.")
@click.option("--json", "json", metavar="FILE", help="Also write the result as JSON ('-': to stdout).")
@click.option("--python", metavar="PATH", help="Interpreter for a bare script or -m (default: flatout's own).")
@click.option("-q", "--quiet", is_flag=True, default=None, help="No progress and no table.")
@click.option("-v", "--verbose", is_flag=True, default=None, help="No difference yet; accepted as everywhere.")
@click.argument("profile", metavar="PROFILE")
@click.argument("cmd", nargs=-1, type=click.UNPROCESSED, required=True, metavar="CMD [ARGS]...")
def verify(profile: str, budget: str, json: str | None, python: str | None, verbose: bool | None, **asked: Any) -> int:
    """Prove a profile again, later or on another machine.

    PROFILE is a flatout.toml, CMD the script it is for. Both arms are run in turns, as at the end of `flatout fix`.
    Exit code 0 if the profile still gains and leaves the training what it was, 1 if not.
    """
    from flatout.app.fix import FixOptions, run_verify

    shared = chosen(json=json, python=python, quiet=asked.pop("quiet"))
    budget_s = seconds_of("--budget", budget, "s")
    return run_verify(FixOptions(profile=Path(profile), budget_s=budget_s, **asked, **shared))


@script_command()
@click.option("--knob", "knobs", multiple=True, metavar="NAME=VALUES", help="What to turn; repeat. See above.")
@click.option(
    "--objective",
    "goal",
    default="samples/s",
    type=click.Choice(("samples/s", "metric", "memory")),
    help="What decides (default: samples/s).",
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
@click.option("--limit", default="10m", metavar="TIME", help="What one trial may take at most (default: 10m).")
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
def tune(
    cmd: tuple[str, ...],
    profile: str | None,
    remedies: tuple[str, ...],
    json: str | None,
    python: str | None,
    **asked: Any,
) -> int:
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
    from flatout.app.tune import TuneOptions, run_tune
    from flatout.launch.profile import read_profile

    # A run's own folder, as the files and FLATOUT_OUT may name one, is none for a search.
    out, budget, limit = (asked.pop(name) for name in ("out", "budget", "limit"))
    for name, least in (("steps", 4), ("warm_up", 0), ("trials", 1)):
        if asked[name] is not None and asked[name] < least:
            raise FlatoutError(f"--{name.replace('_', '-')} must be at least {least}, got {asked[name]}")
    shared = chosen(json=json, python=python, quiet=asked.pop("quiet"), verbose=asked.pop("verbose"))
    options = TuneOptions(
        out=Path(out) if out else None,
        budget_s=None if budget is None else seconds_of("--budget", budget, "s"),
        limit_s=seconds_of("--limit", limit, "s"),
        profile=read_profile(Path(profile) if profile else None, remedies) if profile or remedies else None,
        **asked,
        **shared,
    )
    return run_tune(cmd, options)

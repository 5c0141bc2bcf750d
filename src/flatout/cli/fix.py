"""Make a training script fast without touching it, and prove it by measurement."""

from __future__ import annotations

import os
from pathlib import Path

import click

from flatout.cli.options import UpToTheScript, resolve


@click.command(
    cls=UpToTheScript,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS] [--]",
)
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
def fix(
    cmd: tuple[str, ...],
    allow: tuple[str, ...],
    only: tuple[str, ...],
    without: tuple[str, ...],
    budget: str | None,
    metric: str | None,
    higher: bool,
    dry_run: bool,
    edit: bool,
    allow_writes: bool,
    fresh: bool,
    profile: str | None,
    **flags: str | bool | None,
) -> int:
    """Make a training script fast without touching it, and prove it by measurement.

    CMD is run a dozen times or two for some steps, unmodified, in processes of their own; what it writes goes to a
    scratch folder. Remedies that measurably help are kept and written to flatout.toml, for
    `flatout run --with flatout.toml CMD`. Lossless ones must leave every loss the same, bit by bit; others are only
    tried if you allow them. Exit code 0 if something was kept, 1 if not.
    """
    # Imported here, because completion and --help have no need of it.
    from flatout.app.fix import FixOptions, run_fix

    values = resolve(flags, os.environ, Path.cwd())
    asked = FixOptions(
        cmd=cmd,
        allow=allow,
        only=only,
        without=without,
        budget=budget,
        metric=metric,
        higher=higher,
        dry_run=dry_run,
        edit=edit,
        allow_writes=allow_writes,
        fresh=fresh,
        profile=Path(profile or "flatout.toml"),
        json=str(values["json"]) if "json" in values else None,
        python=str(values["python"]) if "python" in values else None,
        quiet=bool(values.get("quiet", False)),
        verbose=bool(values.get("verbose", False)),
    )
    return run_fix(asked)

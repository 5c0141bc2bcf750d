"""Prove a profile again, later or on another machine."""

from __future__ import annotations

import os
from pathlib import Path

import click

from flatout.cli.options import UpToTheScript, resolve


@click.command(
    cls=UpToTheScript,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
)
@click.option("--budget", metavar="TIME", help="Time for all trials, as 90s, 10m, 1h (default: 5m).")
@click.option("--metric", metavar="REGEX", help="Your quality, as printed: 'PSNR: ([0-9.]+)'.")
@click.option("--higher/--lower", default=True, help="Is a higher metric better? (default: yes)")
@click.option("--allow-writes", is_flag=True, help="Let trials write where the script writes, not to a scratch folder.")
@click.option("--json", "json", metavar="FILE", help="Also write the result as JSON ('-': to stdout).")
@click.option("--python", metavar="PATH", help="Interpreter for a bare script or -m (default: flatout's own).")
@click.option("-q", "--quiet", is_flag=True, default=None, help="No progress and no table.")
@click.option("-v", "--verbose", is_flag=True, default=None, help="No difference yet; accepted as everywhere.")
@click.argument("profile", metavar="PROFILE")
@click.argument("cmd", nargs=-1, type=click.UNPROCESSED, required=True, metavar="CMD [ARGS]...")
def verify(
    profile: str,
    cmd: tuple[str, ...],
    budget: str | None,
    metric: str | None,
    higher: bool,
    allow_writes: bool,
    **flags: str | bool | None,
) -> int:
    """Prove a profile again, later or on another machine.

    PROFILE is a flatout.toml, CMD the script it is for. Both arms are run in turns, as at the end of `flatout fix`.
    Exit code 0 if the profile still gains and leaves the training what it was, 1 if not.
    """
    # Imported here, because completion and --help have no need of it.
    from flatout.app.verify import VerifyOptions, run_verify

    values = resolve(flags, os.environ, Path.cwd())
    return run_verify(
        VerifyOptions(
            file=Path(profile),
            cmd=cmd,
            budget=budget or "5m",
            metric=metric,
            higher=higher,
            allow_writes=allow_writes,
            json=str(values["json"]) if "json" in values else None,
            python=str(values["python"]) if "python" in values else None,
            quiet=bool(values.get("quiet", False)),
        )
    )

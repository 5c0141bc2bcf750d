"""Watch a bundled training project whose GPU sits idle, see why, and make it faster."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("name", required=False)
@click.option("--size", metavar="SIZE", help="tiny (seconds on a CPU) or full (default: full with a GPU).")
@click.option("--data", metavar="DIR", help="Where its data is made and kept (default: your cache folder).")
@click.option("--out", metavar="DIR", help="File the run in DIR instead of .flatout/runs/<id>.")
@click.option("--json", "json", metavar="FILE", help="Also write the result as JSON ('-': to stdout).")
@click.option("-q", "--quiet", is_flag=True, help="No words, only the exit code (and --json).")
@click.option("-v", "--verbose", is_flag=True, help="Show every phase, line and notice.")
@click.option("--fix/--no-fix", "fix", default=True, help="Go on from the verdict to the fix (default: yes).")
@click.option("--list", "show_list", is_flag=True, help="Tell the story of each workload.")
def demo(
    name: str | None,
    size: str | None,
    data: str | None,
    out: str | None,
    json: str | None,
    quiet: bool,
    verbose: bool,
    fix: bool,
    show_list: bool,
) -> int:
    """Watch a bundled training project whose GPU sits idle, see why, and make it faster.

    NAME is one of the workloads of --list; gray_cnn if none is given. It makes its own data, trains for at most a
    minute, shows the verdict, then what `flatout fix` makes of it in two minutes more.
    """
    # Imported here, because completion and --help have no need of it.
    from flatout.app.demo import DEFAULT, Choice, tell_stories
    from flatout.app.demo import run_demo as show
    from flatout.app.run import RunOptions

    if show_list:
        click.echo(tell_stories(), nl=False)
        return 0
    options = RunOptions(out=Path(out) if out else None, json=json, quiet=quiet, verbose=verbose)
    return show(Choice(name or DEFAULT, size, Path(data) if data else None, fix=fix), options)

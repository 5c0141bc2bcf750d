"""One HTML file of a run or a fix: verdict, charts, findings, proof; opens anywhere, offline."""

from __future__ import annotations

import click


@click.command()
@click.argument("run", required=False)
@click.option("-o", "--out", "out", metavar="FILE", help="Where to write it (default: <run>.html; '-': to stdout).")
@click.option("--lang", "language", default="en", metavar="en|zh", help="Language it opens in; both are in the file.")
@click.option("-q", "--quiet", is_flag=True, help="No words, only the file.")
def report(run: str | None, out: str | None, language: str, quiet: bool) -> int:
    """One HTML file of a run or a fix: verdict, charts, findings, proof; opens anywhere, offline.

    RUN is a run's folder, its id or the beginning of it (see `flatout runs`), the latest if none is given; or the
    folder or fix.json of a `flatout fix`, which is in .flatout/fix. Needs neither torch nor a GPU.
    """
    # Imported here, because completion and --help have no need of it.
    from flatout.app.report import run_report

    return run_report(run, out=out, language=language, quiet=quiet)

"""Compare stored runs of the same script: speed with its interval, phases, settings, findings."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...")
@click.option("--fail-below", metavar="PERCENT", help="Exit 1 if a run is surely slower than this, as -3%.")
@click.option("--root", metavar="DIR", type=click.Path(path_type=Path), help="Where to look (default: .flatout/runs).")
@click.option("--json", "json", metavar="FILE", help="Also write the result as JSON ('-': to stdout, alone).")
@click.option(
    "-o", "--out", "html", type=click.Path(path_type=Path), metavar="FILE", help="Also write it as one HTML file."
)
@click.option("--lang", "language", default="en", metavar="en|zh", help="Language the file opens in; both are in it.")
@click.option("-q", "--quiet", is_flag=True, help="Print the verdicts only.")
@click.option("-v", "--verbose", is_flag=True, help="No difference yet; accepted as everywhere.")
def compare(
    runs: tuple[str, ...],
    fail_below: str | None,
    root: Path | None,
    json: str | None,
    html: Path | None,
    language: str,
    quiet: bool,
    verbose: bool,
) -> int:
    """Compare stored runs of the same script: speed with its interval, phases, settings, findings.

    RUN is a run's folder, its id or the beginning of it (see `flatout runs`), or "last"; all others are compared with
    the first. Several runs of one command, joined by commas (A1,A2 B1,B2), are taken together: only they show what one
    process differs by from the next; with one run each, 1% is assumed. Batches of different size are compared by
    samples/s.

    --fail-below -3% is for continuous integration: exit code 1 if a run is surely more than 3% slower than the first,
    that is if the upper end of the 95% interval of the ratio of rates is below 0.97, of all the time there was or of
    the training without evaluations and checkpoints. 0 if not, also where too little was run to be sure; 2 if it could
    not be compared.
    """
    # Imported here, because completion and --help have no need of it.
    from flatout.app.compare import CompareRequest, run_compare

    if len(runs) < 2:
        raise click.UsageError(f"compare needs at least two runs, got {runs[0]!r}")
    text, code = run_compare(CompareRequest(runs, fail_below, root, json, html, language, quiet))
    click.echo(text, nl=False)
    return code

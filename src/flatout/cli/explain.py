"""Explain one problem of the catalogue, or list them all."""

from __future__ import annotations

import click


@click.command()
@click.argument("code", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.option(
    "--lang", "language", default="en", metavar="en|zh", help="Language: zh has problems in short, in Chinese."
)
def explain(code: str | None, as_json: bool, language: str) -> None:
    """Explain one problem of the catalogue or one remedy, or list them all.

    CODE is a code (IN101), a name (no-workers) or a remedy (loader.workers).
    """
    # Imported here, because completion and --help have no need of it.
    from flatout.app.explain import list_catalogue, run_explain

    click.echo(run_explain(code, as_json, language) if code else list_catalogue(as_json, language))

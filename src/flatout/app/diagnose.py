"""`flatout diagnose`: the verdict and the findings of a stored run, judged again by the catalogue of today."""

from __future__ import annotations

import os

from flatout.app.terminal import terminal
from flatout.app.verdict import show
from flatout.diagnose.summary import summarise
from flatout.store.directory import find_run
from flatout.store.run import StoredRun


def judge(name: str | None, *, json_file: str | None, quiet: bool, verbose: bool) -> int:
    """Show what the run comes to. The stored summary stays as it is."""
    run = StoredRun(find_run(name or "last"))
    show(summarise(run), run.path, terminal(os.environ), json_file=json_file, quiet=quiet, verbose=verbose)
    return 0

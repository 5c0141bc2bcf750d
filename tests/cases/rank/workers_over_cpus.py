"""Runs that have RA903, and that must stay quiet."""

from __future__ import annotations

from flatout.records.report import HostUse
from tests.cases.evidence import Case, loader, run, two_ranks

CASES = (
    Case(
        "finds it when two ranks bring twelve workers each to sixteen processors",
        run(ranks=two_ranks(), loaders=(loader(num_workers=12),), host=HostUse(cpu_cores=15.5)),
        found=True,
    ),
    Case(
        "quiet when the processors are not busy",
        run(ranks=two_ranks(), loaders=(loader(num_workers=12),), host=HostUse(cpu_cores=6.0)),
        found=False,
    ),
    Case("quiet when they fit", run(ranks=two_ranks(), host=HostUse(cpu_cores=15.5)), found=False),
    Case(
        "quiet when there is one rank",
        run(ranks=two_ranks()[:1], loaders=(loader(num_workers=24),), host=HostUse(cpu_cores=15.5)),
        found=False,
    ),
)

"""Runs that have RA902, and that must stay quiet."""

from __future__ import annotations

from tests.cases.evidence import Case, run, two_ranks

_MS = {"data": 1.0, "forward": 30.0, "backward": 60.0, "optimizer": 9.0}
CASES = (
    Case(
        "finds it when one rank has larger batches",
        run(ms=_MS, ranks=two_ranks(samples_per_s=640.0, forward=55.0, backward=35.0)),
        found=True,
    ),
    Case("finds it when one rank has more steps", run(ms=_MS, ranks=two_ranks(steps=450)), found=True),
    Case("quiet when they differ by one last batch", run(ms=_MS, ranks=two_ranks(steps=301)), found=False),
    Case("quiet when they have the same", run(ms=_MS, ranks=two_ranks()), found=False),
    Case("quiet when there is one rank", run(ms=_MS, ranks=two_ranks()[:1]), found=False),
)

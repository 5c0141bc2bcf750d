"""Runs that have ME705, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import OomKill
from tests.cases.evidence import CONTAINER, Case, run

CASES = (
    Case(
        "finds it when a worker was killed",
        run(environment=CONTAINER, oom_kill=OomKill(1, "worker", 4242, 9e9)),
        found=True,
    ),
    Case("quiet when nothing was killed", run(environment=CONTAINER), found=False),
    Case("quiet when the count did not move", run(environment=CONTAINER, oom_kill=OomKill(0)), found=False),
)

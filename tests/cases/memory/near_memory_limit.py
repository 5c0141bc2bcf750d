"""Runs that have ME702, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import Series
from flatout.records.report import HostUse
from tests.cases.evidence import CONTAINER, MACHINE, Case, run


def _container(used: float, cache: float) -> dict[str, Series]:
    return {
        "cgroup_memory_bytes": Series((0.0, 1.0), (1e9, used)),
        "cgroup_cache_bytes": Series((0.0, 1.0), (0.0, cache)),
    }


CASES = (
    Case(
        "finds it when the processes fill the machine",
        run(environment=MACHINE, host=HostUse(cpu_cores=4.0, memory_peak=61 << 30)),
        found=True,
    ),
    Case(
        "finds it when the container is nearly full",
        run(environment=CONTAINER, series=_container(15.5 * (1 << 30), 1e8)),
        found=True,
    ),
    Case("quiet with room to spare", run(environment=MACHINE), found=False),
    Case(
        "quiet when it is the file cache that fills the container",
        run(environment=CONTAINER, series=_container(15.5 * (1 << 30), 9e9)),
        found=False,
    ),
)

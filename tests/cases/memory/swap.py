"""Runs that have ME707, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import Series
from tests.cases.evidence import Case, run


def _series(grown: float, faults: float) -> dict[str, Series]:
    t_s = tuple(float(i) for i in range(60))
    return {
        "swap_used_bytes": Series(t_s, tuple(1e9 + grown * t / 60 for t in t_s)),
        "major_faults_per_s": Series(t_s, (faults,) * 60),
    }


CASES = (
    Case("finds it when pages go out and come back", run(series=_series(4e9, 300.0)), found=True),
    Case("quiet when swap in use does not move", run(series=_series(0.0, 1.0)), found=False),
    Case("quiet when pages go out for good", run(series=_series(4e9, 0.5)), found=False),
    Case("quiet when faults are of mapped files", run(series=_series(0.0, 400.0)), found=False),
)

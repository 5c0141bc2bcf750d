"""What the watched processes took of the host, from what the parent process sampled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flatout.diagnose.ranks import Floats, Rank, during_steps
from flatout.records.report import HostUse
from flatout.store.run import StoredRun


def host_use(run: StoredRun, ranks: Sequence[Rank]) -> HostUse | None:
    """None where no process was sampled. The peak is of the whole run: memory is also lost to an evaluation."""
    rows = run.rows("processes")
    if rows is None or not len(rows.values):
        return None
    pss, rss = rows.column("pss_bytes"), rows.column("rss_bytes")
    _, memory = totals(rows.column("t_s"), np.where(np.isfinite(pss), pss, rss))
    steady = during_steps(rows, ranks)
    _, cores = totals(steady.column("t_s"), steady.column("cpu_share"))
    return HostUse(
        cpu_cores=float(cores.mean()) if len(cores) else None,
        memory_peak=int(memory.max()) if len(memory) else None,
    )


def totals(t_s: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Moments of sampling and the sum over all rows of each; moments without any value are left out."""
    known = np.isfinite(values)
    if not known.any():
        return np.empty(0), np.empty(0)
    moments, moment = np.unique(t_s[known], return_inverse=True)
    return moments, np.bincount(moment, weights=values[known]).astype(np.float64)

"""Do the workers compute, or do they wait for what they read? Shared by the problems about workers and storage."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from flatout.problems.input.feeding import BUSY, busy_share, computing_share, spare_cpus
from flatout.records.evidence import Evidence, LoaderUse

# A sample that needs a processor for less of its time than this is waiting for the most part.
_WAITS = 0.5
# From here on a figure speaks of storage; below, every run has some of it.
_READ_BYTES_PER_S = 1e6
_FAULTS_PER_S = 20.0
_IOWAIT_SHARE = 0.05
_PRESSURE_PERCENT = 20.0


def waits_share(run: Evidence, use: LoaderUse) -> float:
    """Part of a sample's time that is waiting, where it is most of it and the workers have no time left; else 0."""
    busy = busy_share(run, use)
    if busy is None or busy < BUSY:
        return 0.0
    waits = 1.0 - computing_share(run, use)
    return waits if waits > _WAITS else 0.0


def storage_signs(run: Evidence, use: LoaderUse) -> dict[str, float | str]:
    """Named figures that say it is storage which is waited for; empty where nothing does."""
    signs: dict[str, float | str] = {}
    processes = use.processes
    reads = processes is not None and (processes.read_bytes_per_s or 0.0) >= _READ_BYTES_PER_S
    where = _slow_filesystem(run, reads)
    if where:
        signs["filesystem"] = where
    if processes is not None and reads:
        signs["worker_read_mb_per_s"] = round((processes.read_bytes_per_s or 0.0) * 1e-6, 1)
    if processes is not None and (processes.major_faults_per_s or 0.0) >= _FAULTS_PER_S:
        signs["worker_major_faults_per_s"] = round(processes.major_faults_per_s or 0.0, 1)
    for name, least in (
        ("nfs_read_bytes_per_s", _READ_BYTES_PER_S),
        ("iowait_share", _IOWAIT_SHARE),
        ("io_pressure_percent", _PRESSURE_PERCENT),
    ):
        series = run.series.get(name)
        if series is not None and series.values and fmean(series.values) >= least:
            signs[name] = round(fmean(series.values), 3)
    return signs


def _slow_filesystem(run: Evidence, reads: bool) -> str | None:
    """The file system that most of the data is on, if it is a network's, or a rotating disk's that is read from.

    A virtual disk often says that it rotates, whatever is behind it.
    """
    found: Any = run.report.environment.get("data_filesystems") or ()
    most = max(found, key=lambda one: one.get("files", 0), default=None)
    if most is None or not (most.get("is_network") or (reads and most.get("is_rotational"))):
        return None
    kind = "network" if most.get("is_network") else "rotating disk"
    return f"{most.get('type')} at {most.get('mount_point')} ({kind})"


def storage_is_to_blame(run: Evidence, use: LoaderUse) -> bool:
    """Waiting workers, and either a sign of storage or already as many workers as there are processors for."""
    if not waits_share(run, use):
        return False
    return bool(storage_signs(run, use)) or use.workers >= spare_cpus(run)

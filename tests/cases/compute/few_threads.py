"""Runs that have CO524, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import ThreadTimes
from flatout.records.report import HostUse, Location
from tests.cases.evidence import Case, on_gpu, run

_MS = {"forward": 30.0, "backward": 55.0, "optimizer": 10.0, "other": 5.0}
_ALONE = HostUse(cpu_cores=1.0)


def _times(many_ms: float) -> ThreadTimes:
    return ThreadTimes(1, 4, 12.0, many_ms, Location("train.py", 9))


CASES = (
    Case(
        "finds it when one of four processors computes",
        run(ms=_MS, cpus=4.0, thread_times=_times(4.0), host=_ALONE),
        found=True,
    ),
    Case(
        "quiet when operations are too small to be divided",
        run(ms=_MS, cpus=4.0, thread_times=_times(11.5), host=_ALONE),
        found=False,
    ),
    Case(
        "quiet when workers have the other processors",
        run(ms=_MS, cpus=4.0, thread_times=_times(4.0), host=HostUse(cpu_cores=3.9)),
        found=False,
    ),
    Case(
        "quiet when the container gives it no more",
        run(ms=_MS, cpus=1.0, thread_times=_times(4.0), host=_ALONE),
        found=False,
    ),
    Case(
        "quiet when the model is on a GPU",
        run(gpu=on_gpu(util_mean=50.0, drained_share=0.5), ms=_MS, cpus=4.0, thread_times=_times(4.0), host=_ALONE),
        found=False,
    ),
    Case("quiet when torch has all of them", run(ms=_MS, cpus=4.0, host=_ALONE), found=False),
)

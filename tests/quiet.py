"""Whether the machine was quiet while a duration was judged: what others take, no test can be blamed for."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from pathlib import Path

import pytest

# Of all processors. Sleeps of 4 ms then take 5 ms and more in the mean.
MOST_STOLEN = 0.01
# In the mean. A free processor wakes a thread within 0.1 ms; a turn of another process on a crowded one is 3 ms.
MOST_LATE_S = 0.003
_SLEEP_S, _SLEEPS = 0.001, 200
_BEGUN = pytest.StashKey[tuple[float, float]]()


def processor_s() -> tuple[float, float]:
    """Seconds since the machine began: of all processors, and those that other virtual machines had instead."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    per_s = os.sysconf("SC_CLK_TCK")
    return sum(ticks) / per_s, ticks[7] / per_s


def stolen_share(begun: tuple[float, float], ended: tuple[float, float]) -> float:
    return (ended[1] - begun[1]) / max(ended[0] - begun[0], 1e-9)


def lateness_s() -> float:
    """How late a thread that sleeps for a millisecond wakes now, in the mean."""
    began = time.perf_counter()
    for _ in range(_SLEEPS):
        time.sleep(_SLEEP_S)
    return (time.perf_counter() - began) / _SLEEPS - _SLEEP_S


def why_excused(error: BaseException, stolen: float, late_s: float) -> str | None:
    """Only what an assertion says can come from a slow machine; a crash is one on any."""
    if not isinstance(error, AssertionError):
        return None
    if stolen > MOST_STOLEN:
        return f"other virtual machines had {stolen:.0%} of the processors"
    return f"a sleeping thread wakes {late_s * 1e3:.0f} ms late" if late_s > MOST_LATE_S else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    item.stash[_BEGUN] = processor_s()
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A judgement of durations that fails on a machine that was not quiet is no judgement."""
    report = yield
    judged = (item.get_closest_marker(name) for name in ("timing", "durations"))
    if not report.failed or call.excinfo is None or not any(judged):
        return report
    stolen = stolen_share(item.stash[_BEGUN], processor_s())
    why = why_excused(call.excinfo.value, stolen, lateness_s())
    if why is not None:
        said = f"not judged: {why} ({call.excinfo})"
        report.outcome, report.longrepr = "skipped", (str(item.path), item.location[1] or 0, said)
    return report

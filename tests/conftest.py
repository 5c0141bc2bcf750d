"""What holds for every test: quick property tests, no leaked sampler threads, GPU tests only where there is a GPU."""

from __future__ import annotations

import functools
import gc
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.quiet import pytest_runtest_makereport, pytest_runtest_setup  # noqa: F401

# Every Python process of the tests begins as tests/startup/sitecustomize.py says.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(__file__).parent / "startup"), *filter(None, [os.environ.get("PYTHONPATH")])]
)
importlib.import_module("tests.startup.sitecustomize")

# Deterministic and small by default; `HYPOTHESIS_PROFILE=thorough` for a night.
hypothesis.settings.register_profile("quick", max_examples=40, deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("thorough", max_examples=2000, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# Started in the background of a shell without job control (`nohup make test &`) SIGINT is ignored, and children inherit
# that: those that tests interrupt would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Importing torch and collecting make millions of objects, which stay: nobody has to look through them for garbage.
gc.disable()

GPU_TESTS = Path(__file__).parent / "gpu"
# Not the browser's: it stays till the end, and its processes are much to look at for those that sample their own.
SLOW_TESTS = [Path(__file__).parent / name for name in ("integration", "workloads")]


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    for item in items:
        if GPU_TESTS in item.path.parents:
            item.add_marker(pytest.mark.gpu)
        if item.get_closest_marker("gpu") and not _has_gpu():
            item.add_marker(pytest.mark.skip(reason="no CUDA device here"))
    yield
    items[:] = _slow_ones_first(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def _slow_ones_first(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Each of xdist's workers begins with its part of the slow files, and quick tests are left for the end.

    `worksteal` gives every worker a stretch of the list, and later half of what another has left. So nobody waits for
    one long test at the end, and a slow file is not cut in two, which would make what its tests share once more.
    """
    if workers == 1:
        return items
    slow: dict[Path, list[pytest.Item]] = {}
    quick: list[pytest.Item] = []
    for item in items:
        if any(folder in item.path.parents for folder in SLOW_TESTS):
            slow.setdefault(item.path, []).append(item)
        else:
            quick.append(item)
    shares: list[list[pytest.Item]] = [[] for _ in range(workers)]
    for number, group in enumerate(slow.values()):
        shares[number % workers] += group
    begun = 0
    for number, share in enumerate(shares):
        # As many as xdist gives: all alike, and the last ones one more.
        size = (len(items) - sum(map(len, shares[:number]))) // (workers - number)
        more = max(0, size - len(share))
        share += quick[begun : begun + more]
        begun += more
    return [item for share in shares for item in share] + quick[begun:]


@functools.cache
def _has_gpu() -> bool:
    # Looked for in this order because importing torch takes seconds on a slow machine.
    if not (Path("/dev/nvidiactl").exists() or Path("/proc/driver/nvidia/version").exists()):
        return False
    import torch

    return torch.cuda.is_available()


@pytest.fixture(autouse=True)
def no_leaked_threads() -> Iterator[None]:
    """A test that starts one of our threads ends it."""
    before = set(threading.enumerate())
    yield
    ours = [t for t in set(threading.enumerate()) - before if t.name.startswith("flatout") and t.is_alive()]
    for thread in ours:
        thread.join(timeout=2.0)
    left = [t.name for t in ours if t.is_alive()]
    assert not left, f"threads left running: {left}"


@pytest.fixture(autouse=True)
def no_compilations_left() -> Iterator[None]:
    """What a test has compiled must not pass for the next one's: remedies ask whether the script compiles."""
    yield
    compiler = sys.modules.get("torch._dynamo.utils")
    if compiler is not None:
        compiler.counters.clear()


@pytest.fixture(autouse=True)
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the shell that started pytest (perhaps itself watched) must not reach the tests."""
    for name in [n for n in os.environ if n.startswith("FLATOUT_")]:
        monkeypatch.delenv(name)

"""What holds for every test: quick property tests, no leaked sampler threads, GPU tests only where there is a GPU."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# Deterministic and small by default; `HYPOTHESIS_PROFILE=thorough` for a night.
hypothesis.settings.register_profile("quick", max_examples=40, deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("thorough", max_examples=2000, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

GPU_TESTS = Path(__file__).parent / "gpu"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if GPU_TESTS in item.path.parents:
            item.add_marker(pytest.mark.gpu)
        if item.get_closest_marker("gpu") and not _has_gpu():
            item.add_marker(pytest.mark.skip(reason="no CUDA device here"))


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
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the shell that started pytest (perhaps itself watched) must not reach the tests."""
    for name in [n for n in os.environ if n.startswith("FLATOUT_")]:
        monkeypatch.delenv(name)

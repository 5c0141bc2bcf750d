"""Tests that need a CUDA device; without one they are skipped. The scripts run as real child processes."""

from __future__ import annotations

import os

import pytest

from tests.integration.conftest import run_bare, watch

__all__ = ["run_bare", "watch"]


def _has_cuda() -> bool:
    # Importing torch takes seconds, so look for a driver first.
    if not os.path.exists("/dev/nvidiactl"):
        return False
    import torch

    return torch.cuda.is_available()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if item.get_closest_marker("gpu")]
    if ours and not _has_cuda():
        for item in ours:
            item.add_marker(pytest.mark.skip(reason="no CUDA device here"))

"""Tests that need a CUDA device; without one they are skipped. The scripts run as real child processes."""

from __future__ import annotations

from tests.integration.conftest import run_bare, watch

__all__ = ["run_bare", "watch"]

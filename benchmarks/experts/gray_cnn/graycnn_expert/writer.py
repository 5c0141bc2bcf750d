"""Writes checkpoints while the training goes on."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from graycnn import checkpoint


class Writer:
    """One checkpoint at a time, from a copy made on the device."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def save(self, path: Path, state: dict[str, Any]) -> None:
        """Copy the state as it is now; the rest happens behind."""
        self.wait()
        copy = tree_map_only(torch.Tensor, torch.clone, state)
        copied = torch.cuda.Event() if torch.cuda.is_available() else None
        if copied is not None:
            copied.record()
        self._last = self._pool.submit(self._write, path, copy, copied)

    def wait(self) -> None:
        """Until the last checkpoint is on disk; raises what went wrong with it."""
        if self._last is not None:
            self._last.result()

    @staticmethod
    def _write(path: Path, state: dict[str, Any], copied: torch.cuda.Event | None) -> None:
        if copied is None:
            checkpoint.save(path, state)
            return
        # On a stream of its own, the way to the host is not in the way of the training.
        with torch.cuda.stream(torch.cuda.Stream()):
            copied.wait()
            checkpoint.save(path, tree_map_only(torch.Tensor, torch.Tensor.cpu, state))

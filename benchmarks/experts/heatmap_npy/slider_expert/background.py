"""Prints figures and writes checkpoints without holding up the step."""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from slider import checkpoint


class Log:
    """Lines with figures of the device, printed when the figures have arrived."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.waiting: deque[tuple[int, Tensor, torch.cuda.Event | None]] = deque()

    def add(self, step: int, figures: Tensor) -> None:
        arrived = None
        if figures.is_cuda:
            host = torch.empty(figures.shape, pin_memory=True)
            host.copy_(figures, non_blocking=True)
            figures, arrived = host, torch.cuda.Event()
            arrived.record()
        self.waiting.append((step, figures, arrived))
        self.flush(wait=False)

    def flush(self, wait: bool) -> None:
        while self.waiting:
            step, figures, arrived = self.waiting[0]
            if arrived is not None and not wait and not arrived.query():
                return
            if arrived is not None:
                arrived.synchronize()
            self.waiting.popleft()
            text = " ".join(f"{name}={value:.4f}" for name, value in zip(self.names, figures.tolist(), strict=True))
            print(f"step {step} {text}", flush=True)


class Saver:
    """Writes a checkpoint from a copy on the device while training goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.thread: threading.Thread | None = None
        self.error: Exception | None = None

    def save(self, state: dict[str, Any]) -> None:
        self.join()
        kept = tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, state)
        ready = None
        if torch.cuda.is_available():
            ready = torch.cuda.Event(blocking=True)
            ready.record()
        self.thread = threading.Thread(target=self._write, args=(kept, ready), name="saver")
        self.thread.start()

    def join(self) -> None:
        if self.thread is not None:
            self.thread.join()
            self.thread = None
        if self.error is not None:
            raise self.error

    def _write(self, state: dict[str, Any], ready: torch.cuda.Event | None) -> None:
        try:
            if ready is not None:
                ready.synchronize()
            checkpoint.write(tree_map(lambda leaf: leaf.cpu() if isinstance(leaf, Tensor) else leaf, state), self.path)
        except Exception as error:
            self.error = error

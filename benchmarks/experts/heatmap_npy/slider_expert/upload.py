"""Copies batches to the device beside the step that runs there."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from slider.loaders import Batch

BUFFERS = 2


@dataclass(slots=True)
class Staging:
    arrays: Batch
    used: torch.cuda.Event = field(default_factory=torch.cuda.Event)


class Uploader:
    """On a GPU two buffers in turn: one is filled while the other is used. On a CPU the batch itself."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.ring: list[Staging] = []
        self.turn = 0

    def __call__(self, batch: Batch) -> Batch:
        if self.stream is None:
            return batch
        if len(self.ring) < BUFFERS:
            self._allocate(batch)
        staging = self.ring[self.turn]
        self.stream.wait_event(staging.used)
        with torch.cuda.stream(self.stream):
            for name, values in batch.items():
                staging.arrays[name].copy_(values, non_blocking=True)
        torch.cuda.current_stream().wait_stream(self.stream)
        return staging.arrays

    def done(self) -> None:
        """The step that uses the last batch has been queued."""
        if self.stream is not None:
            self.ring[self.turn].used.record(torch.cuda.current_stream())
            self.turn = (self.turn + 1) % BUFFERS

    def _allocate(self, batch: Batch) -> None:
        assert self.stream is not None
        self.ring = [
            Staging({name: torch.empty_like(values, device=self.device) for name, values in batch.items()})
            for _ in range(BUFFERS)
        ]
        # The memory may have been another tensor's until just now.
        self.stream.wait_stream(torch.cuda.current_stream())

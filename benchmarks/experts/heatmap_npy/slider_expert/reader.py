"""Reads the NPY files by threads, straight into reused (pinned) memory.

A file is a batch already, so nothing has to be put together: worker processes would only copy it through shared memory,
and a third time to pin it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from slider.config import DataConfig
from slider.generate import array_shapes, batch_path
from slider.loaders import Batch, corrupt

PIECE_BYTES = 16 << 20  # large enough that a thread spends its time in the kernel, not in Python


@dataclass(slots=True)
class Slot:
    """Host memory of one step, and the moment its last copy to the device is done."""

    arrays: Batch
    copied: torch.cuda.Event | None = None


class NpyReader(IterableDataset[Batch]):
    """The batches of the given groups of files, in order. A batch is valid until the next one is asked for, and for
    copies that were started on `copy_stream` by then.
    """

    def __init__(
        self,
        folder: Path,
        split: str,
        groups: Sequence[Sequence[int]],
        arrays: Sequence[str],
        data: DataConfig,
        threads: int,
        slots: int = 4,
        copy_stream: torch.cuda.Stream | None = None,
    ) -> None:
        self.folder, self.split, self.groups, self.data = folder, split, groups, data
        self.threads, self.copy_stream = threads, copy_stream
        self.shapes = {name: shape for name, shape in array_shapes(data).items() if name in arrays}
        self.slots = min(slots, len(groups))

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[Batch]:
        groups = iter(self.groups)
        pool = ThreadPoolExecutor(self.threads, "npy")
        waiting: deque[tuple[Slot, list[Future[None]]]] = deque()
        try:
            for _ in range(self.slots):
                slot, group = self._slot(), next(groups)
                waiting.append((slot, self._fill(pool, slot, group)))
            while waiting:
                slot, reads = waiting.popleft()
                for read in reads:
                    read.result()
                yield slot.arrays
                if self.copy_stream is not None:
                    slot.copied = torch.cuda.Event(blocking=True)
                    slot.copied.record(self.copy_stream)
                following = next(groups, None)
                if following is not None:
                    waiting.append((slot, self._fill(pool, slot, following)))
        finally:
            pool.shutdown(cancel_futures=True)

    def _slot(self) -> Slot:
        pinned = self.copy_stream is not None
        files = len(self.groups[0])
        return Slot(
            {
                name: torch.empty((files * shape[0], *shape[1:]), pin_memory=pinned)
                for name, shape in self.shapes.items()
            }
        )

    def _fill(self, pool: ThreadPoolExecutor, slot: Slot, group: Sequence[int]) -> list[Future[None]]:
        count = self.data.batch_size
        reads = []
        for position, index in enumerate(group):
            for name, tensor in slot.arrays.items():
                path = batch_path(self.folder, self.split, index, name)
                target = tensor[position * count : (position + 1) * count]
                memory = target.numpy().reshape(-1).view(np.uint8).data
                for start in range(0, len(memory), PIECE_BYTES):
                    piece = memory[start : start + PIECE_BYTES]
                    shape = self.shapes[name]
                    reads.append(pool.submit(read_piece, path, shape, start, piece, slot.copied))
        return reads


def read_piece(
    path: Path, shape: tuple[int, ...], start: int, into: memoryview, copied: torch.cuda.Event | None
) -> None:
    """Fill `into` from `start` bytes into the file's array, once the device has what was there before."""
    if copied is not None:
        copied.synchronize()
    try:
        offset = array_offset(path, shape) + start
        with open(path, "rb", buffering=0) as file:
            while into:
                count = os.preadv(file.fileno(), [into], offset)
                if count == 0:
                    raise corrupt(path)
                into, offset = into[count:], offset + count
    except (OSError, ValueError):
        raise corrupt(path) from None


@cache
def array_offset(path: Path, shape: tuple[int, ...]) -> int:
    """Where the values begin; the header must be the expected one."""
    with open(path, "rb", buffering=256) as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise corrupt(path)
        found, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        if found != shape or fortran or dtype != np.float32:
            raise corrupt(path)
        return file.tell()


def make_loader(reader: NpyReader) -> DataLoader[Batch]:
    """A loader in front, so that tools that look at loaders see this one too; it adds nothing."""
    return DataLoader(reader, batch_size=None, num_workers=0)


def reader_threads(configured: int) -> int:
    """As configured, but some cores stay with the main thread."""
    return max(2, min(configured, len(os.sched_getaffinity(0)) - 4))

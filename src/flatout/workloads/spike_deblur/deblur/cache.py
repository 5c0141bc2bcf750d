"""A cache of decoded frames with a limit in bytes, and its statistics."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor
from torch.utils.data import get_worker_info

HITS, MISSES, ITEMS, BYTES = range(4)


class CacheStats:
    """Counts in shared memory, so that the training process can print what the loader's workers count."""

    def __init__(self, workers: int) -> None:
        self._rows = torch.zeros(workers + 1, 4, dtype=torch.int64).share_memory_()

    def row(self) -> Tensor:
        """This process's own counts; nobody else writes them."""
        info = get_worker_info()
        row: Tensor = self._rows[0 if info is None else info.id + 1]
        return row

    def total(self) -> list[int]:
        counts: list[int] = self._rows.sum(dim=0).tolist()
        return counts


class LRUCache:
    """Keeps the frames used last, up to `max_memory_gb`."""

    def __init__(self, max_memory_gb: float, stats: CacheStats) -> None:
        self.max_memory_bytes = int(max_memory_gb * 1024**3)
        self.current_memory = 0
        self._frames: OrderedDict[tuple[int, int], dict[str, Tensor]] = OrderedDict()
        self._stats = stats

    def __len__(self) -> int:
        return len(self._frames)

    def get(self, key: tuple[int, int]) -> dict[str, Tensor] | None:
        frame = self._frames.get(key)
        self._stats.row()[MISSES if frame is None else HITS] += 1
        if frame is None:
            return None
        self._frames.move_to_end(key)
        # Augmentation must not write into the cached copy.
        return {name: tensor.clone() for name, tensor in frame.items()}

    def put(self, key: tuple[int, int], frame: dict[str, Tensor]) -> None:
        size = _size_bytes(frame)
        if size > self.max_memory_bytes:
            return
        while self.current_memory + size > self.max_memory_bytes:
            _, oldest = self._frames.popitem(last=False)
            self.current_memory -= _size_bytes(oldest)
        self._frames[key] = frame
        self.current_memory += size
        row = self._stats.row()
        row[ITEMS], row[BYTES] = len(self._frames), self.current_memory


def _size_bytes(frame: dict[str, Tensor]) -> int:
    return sum(tensor.nbytes for tensor in frame.values())

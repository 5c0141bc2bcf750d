"""What does a batch cost the thread that trains, though it lies ready: torch's loader and ours.

    python -m benchmarks.handover [--mib 1 4 16 32 64] [--rounds 5]

One worker makes batches of so many MiB ahead of time. The loop takes one, reads it (copies it to the device where there
is a GPU, else to other memory), does a fixed amount of small operations and drops it. What a step takes more than the
small operations and the reading of memory of one's own is what the loader costs: mapping memory, touching it for the
first time, freeing it. Where batches are pinned a thread does that, so it is also measured how long small operations
pause while another thread lets go of a batch.
"""

from __future__ import annotations

import argparse
import queue
import threading
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.common.results import table, write
from flatout import DataLoader as Ours

_MIB = 2**20
_PARTS = 2  # samples of a batch
_STEPS, _WARM_UP = 24, 6
_OPERATIONS_S = 0.08
_HEAD = ["MiB a batch", "torch adds ms", "flatout adds ms", "saved ms"]
_HEAD += ["pause while another thread frees it, torch ms", "flatout ms"]
_LOOKED_S = 0.05
LOADERS = {"torch": DataLoader, "flatout": Ours}


class Filled(Dataset[torch.Tensor]):
    def __init__(self, mib: float) -> None:
        self._numbers = int(mib * _MIB / 4 / _PARTS)

    def __len__(self) -> int:
        return _PARTS * (_STEPS + _WARM_UP)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((self._numbers,), float(index))


def _small_operations() -> Callable[[], None]:
    """About as long each time, in many calls that let other threads in."""
    value = torch.zeros(64)

    def some(count: int) -> None:
        for _ in range(count):
            value.add_(1.0)

    begun = time.perf_counter()
    some(20_000)
    count = int(20_000 * _OPERATIONS_S / (time.perf_counter() - begun))
    return lambda: some(count)


def _reading() -> Callable[[torch.Tensor], Any]:
    if torch.cuda.is_available():
        return lambda batch: batch.cuda()
    return lambda batch: batch.clone()


def steps_ms(batches: Any, work: Callable[[], None], read: Callable[[torch.Tensor], Any]) -> list[float]:
    found, begun = [], time.perf_counter()
    for batch in batches:
        read(batch)
        del batch
        work()
        now = time.perf_counter()
        found.append(1e3 * (now - begun))
        begun = now
    return found[_WARM_UP:]


def added_ms(mib: float, rounds: int) -> dict[str, list[float]]:
    """By loader, what each round's middle step takes more than one on memory of its own."""
    work, read = _small_operations(), _reading()
    found: dict[str, list[float]] = {name: [] for name in LOADERS}
    own = torch.zeros(int(mib * _MIB / 4), pin_memory=torch.cuda.is_available())
    for _ in range(rounds):
        alone_ms = median(steps_ms([own] * (_STEPS + _WARM_UP), work, read))
        for name in LOADERS:
            batches = _made(name, mib, pin_memory=torch.cuda.is_available())
            found[name].append(median(steps_ms(batches, work, read)) - alone_ms)
    return found


def _made(name: str, mib: float, pin_memory: bool = False) -> Any:
    return LOADERS[name](Filled(mib), batch_size=_PARTS, num_workers=1, prefetch_factor=3, pin_memory=pin_memory)


def pause_ms(mib: float, name: str) -> float:
    """The longest that small operations wait for each other while another thread lets go of a batch; the middle one."""
    batches: queue.SimpleQueue[Any] = queue.SimpleQueue()
    freeing = threading.Thread(target=_let_go, args=(batches,), daemon=True)
    freeing.start()
    value, longest = torch.zeros(64), []
    for batch in _made(name, mib):
        batch.sum()
        batches.put(batch)
        del batch
        last = begun = time.perf_counter()
        most_s = 0.0
        while last < begun + _LOOKED_S:
            value.add_(1.0)
            now = time.perf_counter()
            most_s, last = max(most_s, now - last), now
        longest.append(1e3 * most_s)
    batches.put(None)
    freeing.join()
    return median(longest[_WARM_UP:])


def _let_go(batches: queue.SimpleQueue[Any]) -> None:
    while batches.get() is not None:
        pass  # it was let go of by that


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=float, nargs="*", default=[1.0, 4.0, 16.0, 32.0, 64.0])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows, all_ms, pauses_ms = [], {}, {}
    for mib in options.mib:
        all_ms[mib] = added = added_ms(mib, options.rounds)
        saved = [torchs - ours for torchs, ours in zip(added["torch"], added["flatout"], strict=True)]
        pauses_ms[mib] = pauses = {name: [pause_ms(mib, name) for _ in range(options.rounds)] for name in LOADERS}
        rows.append([f"{mib:g}", *map(_spread, (*added.values(), saved, *pauses.values()))])
        print("  ".join(rows[-1]), flush=True)
    print(write("handover", {"added_ms": all_ms, "pauses_ms": pauses_ms}, table(_HEAD, rows)))


def _spread(values: list[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()

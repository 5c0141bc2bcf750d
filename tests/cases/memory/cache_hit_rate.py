"""Runs and code that have ME709, and that must stay quiet."""

from __future__ import annotations

from typing import Any

from flatout.records.evidence import CacheUse, Evidence
from flatout.records.report import CopySite, HostUse, Location
from tests.cases.code import SourceCase
from tests.cases.evidence import Case, loader, on_gpu, run, starved_run, worker_cost

_FULL = HostUse(cpu_cores=4.8, memory_peak=8 << 30)
_BUSY = worker_cost(fetch_ms_per_sample=12.0, busy_share=0.98, samples=9600)
_LRU = CacheUse("Frames.cache", "dict", 4, 200.0, None, hit_rate=0.02, keys_per_sample=1.0, evicts=True)
_DYING = CacheUse("Frames.cache", "dict", 32, 300.0, None, hit_rate=0.0, keys_per_sample=1.0, evicts=False)


def _with(cache: CacheUse, persistent: bool = True, length: int = 1200, **more: Any) -> Evidence:
    use = loader(cost=_BUSY, dataset_len=length, persistent_workers=persistent)
    return starved_run(use, cpus=5.0, host=_FULL, caches=(cache,), **more)


# Samples of a gigabyte each.
_LARGE = (CopySite(Location("train.py", 12), "train", 1.0, 2.0, 32 * 1e9, 1.0, 1.0),)


CASES = (
    Case("finds it when the least recently used goes first", _with(_LRU), found=True),
    Case("finds it when it dies with its worker", _with(_DYING, persistent=False), found=True),
    Case(
        "finds it when functools keeps the usual 128",
        _with(CacheUse("decode", "lru_cache", 4, 128.0, 128, 0.05, 1.0, evicts=True)),
        found=True,
    ),
    Case(
        "finds it when it holds next to nothing, and there is memory for all",
        _with(CacheUse("decode", "lru_cache", 4, 8.0, 8, 0.01, 1.0, evicts=True)),
        found=True,
    ),
    Case(
        "quiet when most of what is asked for is there",
        _with(CacheUse("Frames.cache", "dict", 4, 900.0, None, 0.8, 1.0, evicts=True)),
        found=False,
    ),
    Case(
        "quiet when all that it could hold is next to nothing",
        _with(
            CacheUse("decode", "lru_cache", 4, 8.0, 8, 0.01, 1.0, evicts=True),
            copies=_LARGE,
            environment={"memory_bytes": 64 << 30},
        ),
        found=False,
    ),
    Case("quiet when every sample was made once", _with(_LRU, length=9600), found=False),
    Case(
        "quiet when nobody waits for the samples",
        run(gpu=on_gpu(), loaders=(loader(cost=_BUSY, dataset_len=1200),), caches=(_LRU,)),
        found=False,
    ),
)

_TRAIN = """
loader = DataLoader(Images(paths), batch_size=32, %s)%s
for epoch in range(10):
    for batch in loader:
        model(batch).backward()
        optimizer.step()
"""
_DICT = """
class Images(Dataset):
    def __init__(self, paths):
        self.paths = paths
        self.cache = {}

    def __getitem__(self, index):
        if index not in self.cache:
            self.cache[index] = decode(self.paths[index])
        return self.cache[index]
"""
_LEAST_RECENT = """
class Images(Dataset):
    def __init__(self, paths):
        self.paths = paths
        self.cache = OrderedDict()

    def __getitem__(self, index):
        if index in self.cache:
            self.cache.move_to_end(index)
            return self.cache[index]
        if len(self.cache) > 1000:
            self.cache.popitem(last=False)
        self.cache[index] = decode(self.paths[index])  # found
        return self.cache[index]
"""
_BY_VIDEO = _DICT.replace("if index", "video, frame = self.paths[index]\n        if video").replace(
    "[index]", "[video]"
)
SOURCE_CASES = (
    SourceCase("finds it when workers take it with them", _DICT + _TRAIN % ("num_workers=8", "  # found")),
    SourceCase(
        "finds it when the least recently used goes",
        _LEAST_RECENT + _TRAIN % ("shuffle=True, num_workers=8, persistent_workers=True", ""),
    ),
    SourceCase("quiet when the workers stay", _DICT + _TRAIN % ("num_workers=8, persistent_workers=True", "")),
    SourceCase("quiet without workers", _DICT + _TRAIN % ("num_workers=0", "")),
    SourceCase("quiet when several samples share what is kept", _BY_VIDEO + _TRAIN % ("num_workers=8", "")),
    SourceCase(
        "quiet when nothing is shuffled",
        _LEAST_RECENT.replace("  # found", "") + _TRAIN % ("num_workers=8, persistent_workers=True", ""),
    ),
)

"""Runs and code that have ME706, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import Series
from tests.cases.code import SourceCase
from tests.cases.evidence import MACHINE, Case, growing_series, loader, run


def _series(per_s: float, ends_at_s: float = 60.0) -> dict[str, Series]:
    resident = growing_series(5e8, per_s, ends_at_s)
    return {"worker_rss_bytes": resident, "workers_alive": Series(resident.t_s, (4.0,) * len(resident.t_s))}


_FIRST_EPOCH = (loader(epochs=1, dataset_len=100_000),)
CASES = (
    Case(
        "finds it when a cache per worker will not fit",
        run(series=_series(20e6), environment=MACHINE, loaders=_FIRST_EPOCH),
        found=True,
    ),
    Case("finds it when it grows epoch after epoch", run(series=_series(5e6), environment=MACHINE), found=True),
    Case("quiet when it levels off", run(series=_series(20e6, 40.0), environment=MACHINE), found=False),
    Case(
        "quiet when all of the data fits four times",
        run(series=_series(2e6), environment=MACHINE, loaders=(loader(epochs=1, dataset_len=10_000),)),
        found=False,
    ),
)

_TRAIN = """
loader = DataLoader(Images(paths), batch_size=32, num_workers=%s, persistent_workers=True)
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

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        if index not in self.cache:
            self.cache[index] = decode(self.paths[index])  # found
        return self.cache[index]
"""
_OWN_CLASS = """
class Recent:
    def __init__(self, most_bytes):
        self.items = OrderedDict()
        self.used, self.most_bytes = 0, most_bytes

    def get(self, key):
        if key in self.items:
            self.items.move_to_end(key)
            return self.items[key]
        return None

    def put(self, key, value):
        while self.used + value.nbytes > self.most_bytes:
            self.used -= self.items.popitem(last=False)[1].nbytes
        self.items[key] = value  # found

class Images(Dataset):
    def __init__(self, paths, cache_gb=50):
        self.paths = paths
        self.cache = Recent(cache_gb << 30)

    def __getitem__(self, index):
        sample = self.cache.get(index)
        if sample is None:
            sample = decode(self.paths[index])
            self.cache.put(index, sample)
        return sample
"""
_DECORATED = """
class Images(Dataset):
    def __init__(self, paths):
        self.paths = paths

    @lru_cache(maxsize=None)  # found
    def picture(self, path):
        return imread(path)

    def __getitem__(self, index):
        return self.picture(self.paths[index])
"""
_HANDLES = """
class Images(Dataset):
    def __init__(self, paths):
        self.paths, self.files = paths, {}

    def __getitem__(self, index):
        path, row = self.paths[index]
        if path not in self.files:
            self.files[path] = h5py.File(path)
        return self.files[path][row]
"""
_SHARED = _DICT.replace("self.cache = {}", "self.cache = Manager().dict()").replace("  # found", "")
_SWITCH = _DICT.replace("(self, paths)", "(self, paths, keep=False)").replace("self.paths = paths", "self.keep = keep")
SOURCE_CASES = (
    SourceCase("finds it in a dict of the dataset", _DICT + _TRAIN % 8),
    SourceCase("finds it when nobody knows how many workers there are", _DICT + _TRAIN % "args.workers"),
    SourceCase("finds it in a cache with a limit", _OWN_CLASS + _TRAIN % 8),
    SourceCase("finds it when a decorator keeps samples", _DECORATED + _TRAIN % 8),
    SourceCase(
        "quiet without workers", _DICT.replace("  # found", "") + _TRAIN.replace(", persistent_workers=True", "") % 0
    ),
    SourceCase("quiet when all workers share it", _SHARED + _TRAIN % 8),
    SourceCase("quiet when it keeps opened files", _HANDLES + _TRAIN % 8),
    SourceCase(
        "quiet when it is switched off",
        _SWITCH.replace("if index not in self.cache:", "if self.keep and index not in self.cache:").replace(
            "  # found", ""
        )
        + _TRAIN % 8,
    ),
    SourceCase(
        "quiet when all is loaded before the workers begin",
        _DICT.replace("self.cache = {}", "self.cache = [decode(path) for path in paths]").replace(
            "        if index not in self.cache:\n            self.cache[index] = decode(self.paths[index])  # found\n",
            "",
        )
        + _TRAIN % 8,
    ),
)

"""The dataset caches every sample, without a limit.

What it is: the dataset keeps each sample it makes, in a dict or by `lru_cache(maxsize=None)`, and nothing limits the
memory that takes.

Why the GPU idles: it does not, until memory runs out: then the system swaps, or kills the run in the middle of an
epoch. With workers, each of them keeps a cache of its own.

How it shows in source: a dict of the dataset that `__getitem__`, or what it calls, fills and never empties, with a
loader without workers. With workers it is ME706.

The fix: count the bytes and add nothing more when a limit is reached: `if self.bytes + x.nbytes < self.most: keep`. Do
not evict: with each sample once an epoch a cache that never evicts is hit most often. Keep the compact form (bytes of a
JPEG, uint8), not the one that the model sees.

What to expect: the same speed as long as it fits, and a run that ends when it should.

When it is fine: the whole dataset is known to fit, with room for all ranks of the machine.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.cases import SourceCase
from flatout.problems.found import FoundInSource
from flatout.records.message import message
from flatout.records.source import Related
from flatout.source.code import Code
from flatout.source.epochs import known_workers

CODE = "ME711"


def in_source(code: Code) -> Iterator[FoundInSource]:
    for cache in code.caches:
        loaders = cache.dataset.trains
        if cache.is_limited or not loaders or any(known_workers(made, code) != 0 for made in loaders):
            continue
        first = loaders[0]
        yield FoundInSource(
            severity="low",
            place=cache.function.module.place(cache.node),
            cause=message("me711.source_cause", cache=cache.name),
            change=message("me711.source_change"),
            related=(Related(first.function.module.place(first.call), message("related.its_loader")),),
        )


_TRAIN = """
loader = DataLoader(Images(paths), batch_size=32, shuffle=True%s)
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
        if index in self.cache:
            return self.cache[index]
        image = decode(self.paths[index])
        %s
        return image
"""
_KEPT = "self.cache[index] = image"
_MEASURED = "if len(self.cache) < self.most:\n            self.cache[index] = image"
SOURCE_CASES = (
    SourceCase("finds it when nothing bounds the cache", _DICT % f"{_KEPT}  # found" + _TRAIN % ""),
    SourceCase("quiet when it takes no more beyond a limit", _DICT % _MEASURED + _TRAIN % ""),
    SourceCase("quiet with workers, where it is said of each of them", _DICT % _KEPT + _TRAIN % ", num_workers=4"),
    SourceCase("quiet when nothing is kept", _DICT % "pass" + _TRAIN % ""),
)

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

from flatout.problems.found import FoundInSource, loader_is_here
from flatout.records.message import message
from flatout.source.code import Code
from flatout.source.loops import known_workers

CODE = "ME711"


def in_source(code: Code) -> Iterator[FoundInSource]:
    for cache in code.caches:
        loaders = cache.dataset.trains
        if cache.is_limited or not loaders or any(known_workers(made, code) != 0 for made in loaders):
            continue
        yield FoundInSource(
            severity="low",
            place=cache.function.module.place(cache.node),
            cause=message("me711.source_cause", cache=cache.name),
            change=message("me711.source_change"),
            related=loader_is_here(loaders[0]),
        )

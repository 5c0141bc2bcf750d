"""Loaders that read shards: WebDataset and LitData. The shards are written first, and that is not timed.

What stands in a shard is what a sample is made from; the work is done by the same function as in the other arms, in the
worker that reads it. Both give a worker shards of its own, so samples come in another order than they were written.
"""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from torch.utils.data import default_collate

# At least so many for each worker: whoever has one more than another would set the pace.
_SHARDS_PER_WORKER = 4


def _shards(dataset: Any, workers: int) -> list[range]:
    """Which samples go into which shard, as evenly as can be."""
    size, count = len(dataset), min(len(dataset), _SHARDS_PER_WORKER * workers)
    ends = [size * number // count for number in range(count + 1)]
    return [range(begin, end) for begin, end in pairwise(ends)]


class WebDatasetShards:
    def __init__(self, dataset: Any, batch: int, workers: int, prefetch: int) -> None:
        import webdataset  # type: ignore[import-not-found]  # a peer, elsewhere

        self._folder = tempfile.TemporaryDirectory(prefix="flatout-bench-")
        urls = [self._write(dataset, number, shard) for number, shard in enumerate(_shards(dataset, workers))]

        def made(sample: Any) -> Any:
            return dataset.made(sample["raw"], int(sample["__key__"]))

        samples = webdataset.WebDataset(urls, shardshuffle=False).map(made).batched(batch, collation_fn=default_collate)
        self._loader = webdataset.WebLoader(
            samples, batch_size=None, num_workers=workers, prefetch_factor=prefetch, persistent_workers=True
        )

    def _write(self, dataset: Any, number: int, shard: range) -> str:
        path = Path(self._folder.name) / f"{number:04d}.tar"
        with tarfile.open(path, "w") as archive:
            for index in shard:
                entry, raw = tarfile.TarInfo(f"{index:08d}.raw"), dataset.raw_of(index)
                entry.size = len(raw)
                archive.addfile(entry, io.BytesIO(raw))
        return str(path)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)


class LitDataShards:
    def __init__(self, dataset: Any, batch: int, workers: int, prefetch: int) -> None:
        os.environ["LITDATA_DISABLE_VERSION_CHECK"] = "1"
        import litdata  # type: ignore[import-not-found]  # a peer, elsewhere
        from litdata.streaming.cache import Cache  # type: ignore[import-not-found]

        self._folder = tempfile.TemporaryDirectory(prefix="flatout-bench-")
        cache = Cache(self._folder.name, chunk_size=max(1, len(_shards(dataset, workers)[0])))
        for index in range(len(dataset)):
            cache[index] = {"raw": dataset.raw_of(index), "index": index}
        cache.done()
        cache.merge()

        class Made(litdata.StreamingDataset):  # type: ignore[misc]
            def __getitem__(self, place: Any) -> Any:
                sample = super().__getitem__(place)
                return dataset.made(sample["raw"], sample["index"])

        self._loader = litdata.StreamingDataLoader(
            Made(self._folder.name, shuffle=False, drop_last=False),
            batch_size=batch,
            num_workers=workers,
            prefetch_factor=prefetch,
            persistent_workers=True,
        )

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)

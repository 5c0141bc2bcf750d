"""Loads one dataset with one loader and times a pass after the loader has warmed up.

python feeding.py OUT DATASET ARM WORKERS PREFETCH SAMPLES
"""

from __future__ import annotations

import io
import json
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.utils.data import default_collate

BATCH = 16
WARM_STEPS = 200
# For all arms alike. What an epoch teaches flatout (which samples are slow) is used in the next.
WARM_PASSES = 3
STRAGGLER_EVERY = 50


class Images:
    """CPU-heavy: a JPEG is decoded and made a float image."""

    size = 960

    def __init__(self) -> None:
        from PIL import Image

        pixels = numpy.random.default_rng(0).integers(0, 255, (24, 24, 3), dtype=numpy.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).resize((320, 320)).save(file, "JPEG", quality=92)
        self.raw = file.getvalue()

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return self.made(self.raw, index)

    def raw_of(self, index: int) -> bytes:
        """What a sample is made from."""
        return self.raw

    def made(self, raw: bytes, index: int) -> Any:
        from PIL import Image

        pixels = numpy.asarray(Image.open(io.BytesIO(raw)).resize((160, 160)), dtype=numpy.float32)
        pixels = (pixels / 255.0 - 0.45) / 0.22
        return torch.from_numpy(numpy.ascontiguousarray(pixels.transpose(2, 0, 1))), index


class Remote:
    """Latency-bound: each sample waits for a store somewhere else."""

    size = 4800

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return self.made(b"", index)

    def raw_of(self, index: int) -> bytes:
        return b"-"

    def made(self, raw: bytes, index: int) -> Any:
        time.sleep(0.008)
        return torch.full((3, 64, 64), float(index)), index


class Straggling(Remote):
    """The same with one sample in fifty, by chance, that takes 40 times as long."""

    def __init__(self) -> None:
        self.is_slow = numpy.random.default_rng(0).random(self.size) < 1 / STRAGGLER_EVERY

    def made(self, raw: bytes, index: int) -> Any:
        time.sleep(0.320 if self.is_slow[index] else 0.008)
        return torch.full((3, 64, 64), float(index)), index


DATASETS: dict[str, Any] = {"cpu-heavy": Images, "latency-bound": Remote, "straggler-laden": Straggling}


def torch_arm(dataset: Any, workers: int, prefetch: int) -> Any:
    from torch.utils.data import DataLoader

    return DataLoader(dataset, BATCH, num_workers=workers, prefetch_factor=prefetch, persistent_workers=True)


def flatout_arm(dataset: Any, workers: int, prefetch: int) -> Any:
    from flatout.feed.loader import DataLoader

    # Starts from nothing: it finds its setting itself.
    return DataLoader(dataset, BATCH, num_workers=1, persistent_workers=True, tune=True)


class _Spdl:
    def __init__(self, dataset: Any, workers: int, prefetch: int) -> None:
        self.dataset, self.workers, self.prefetch = dataset, workers, prefetch

    def __iter__(self) -> Iterator[Any]:
        from spdl.pipeline import PipelineBuilder  # type: ignore[import-not-found]  # a peer, elsewhere

        pipeline = (
            PipelineBuilder()
            .add_source(range(len(self.dataset)))
            .pipe(self.dataset.__getitem__, concurrency=self.workers, output_order="input")
            .aggregate(BATCH)
            .pipe(default_collate)
            .add_sink(self.prefetch)
            .build(num_threads=self.workers)
        )
        with pipeline.auto_stop():
            yield from pipeline.get_iterator()


class _Nodes:
    def __init__(self, dataset: Any, workers: int, prefetch: int) -> None:
        self.dataset, self.workers, self.prefetch = dataset, workers, prefetch

    def __iter__(self) -> Iterator[Any]:
        from torchdata import nodes  # type: ignore[import-not-found]  # a peer, elsewhere

        source = nodes.IterableWrapper(range(len(self.dataset)))
        loaded = nodes.ParallelMapper(source, self.dataset.__getitem__, num_workers=self.workers, method="thread")
        batched = nodes.Mapper(nodes.Batcher(loaded, BATCH, drop_last=False), default_collate)
        return iter(nodes.Loader(nodes.Prefetcher(batched, self.prefetch)))


def webdataset_arm(dataset: Any, workers: int, prefetch: int) -> Any:
    from shards import WebDatasetShards  # type: ignore[import-not-found]  # beside this script

    return WebDatasetShards(dataset, BATCH, workers, prefetch)


def litdata_arm(dataset: Any, workers: int, prefetch: int) -> Any:
    from shards import LitDataShards

    return LitDataShards(dataset, BATCH, workers, prefetch)


ARMS: dict[str, Any] = {
    "torch": torch_arm,
    "flatout": flatout_arm,
    "spdl": _Spdl,
    "torchdata": _Nodes,
    "webdataset": webdataset_arm,
    "litdata": litdata_arm,
}
# They have no order but that of their shards and workers.
IN_ORDER_OF_SHARDS = ("webdataset", "litdata")


def consume(batches: Iterable[Any]) -> tuple[int, list[int]]:
    """All batches; the number of steps and the order of the samples."""
    steps, order = 0, []
    for _, indices in batches:
        steps += 1
        order += indices.tolist()
    return steps, order


def main() -> None:
    out, name, arm, workers, prefetch, samples = sys.argv[1:7]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dataset = DATASETS[name]()
    dataset.size = min(dataset.size, int(samples))
    loader = ARMS[arm](dataset, int(workers), int(prefetch))
    steps = passes = 0
    while passes < WARM_PASSES or (arm == "flatout" and steps < WARM_STEPS):
        steps += consume(loader)[0]
        passes += 1
    began_s = time.perf_counter()
    _, order = consume(loader)
    took_s = time.perf_counter() - began_s
    if arm in IN_ORDER_OF_SHARDS:
        order = sorted(order)
    assert order == list(range(len(dataset))), "not the same work: other samples, or in another order"
    tuner = loader._feed.tuner if arm == "flatout" else None
    result = {
        "samples_per_s": len(dataset) / took_s,
        "workers": getattr(loader, "num_workers", int(workers)),
        "settled_at": tuner.settled_at if tuner is not None else None,
    }
    Path(out).write_text(json.dumps(result))


if __name__ == "__main__":
    main()

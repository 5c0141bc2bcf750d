"""The shared sample cache: hits against theory, a get against a memcpy and against its peers, memory against workers.

    python -m benchmarks.cache            all of it, about two minutes
    python -m benchmarks.cache --gate     exit 1 if a bar is missed

lmdb and diskcache are put into a folder of their own; without a network they are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.utils.data as data

from benchmarks.common import results
from benchmarks.common.cache_theory import belady_hits, keep_hits, lru_hits
from benchmarks.common.child import ROOT
from benchmarks.common.memory import total_pss_bytes
from benchmarks.common.stats import Estimate, estimate
from flatout.feed.cache import place
from flatout.feed.cache.dataset import cached, foresee, is_cached
from flatout.feed.cache.segment import TABLE_AT, Field, Word
from flatout.feed.cache.table import release_all

PEERS = ROOT / ".venv-cache-peers"
SHAPE = (3, 224, 224)
SAMPLE_BYTES = 3 * 224 * 224
LIMIT_POINTS = 1.0
LIMIT_RATIO = 1.5
LIMIT_GROWTH = 1.10
WORKERS = (1, 2, 4, 8, 16)


class Images(data.Dataset[Any]):
    """150 KB each, and nothing to compute."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return torch.full(SHAPE, index % 256, dtype=torch.uint8), index


@dataclass(frozen=True, slots=True)
class HitRate:
    """Of samples read before; `optimum` is a simulation of the same policy over the same order in pure Python."""

    case: str
    real: float
    optimum: float
    predicted: float | None

    @property
    def points_below(self) -> float:
        return 100 * (self.optimum - self.real)


def budget_bytes(length: int, places: int) -> int:
    """What the table takes, and room for that many samples of exactly their own bytes."""
    return (TABLE_AT + length * 8) * 8 + 4096 + places * SAMPLE_BYTES


# Samples cost nothing to make here, so that only the cache is measured; as data they would not be worth caching.
place.WORTHWHILE = 0.0


@contextlib.contextmanager
def cache_of(length: int, places: int, policy: str) -> Iterator[Any]:
    dataset = cached(Images(length), budget_bytes(length, places), policy=policy)
    if not is_cached(dataset):
        raise SystemExit("the cache could not be made")
    yield dataset
    del dataset
    release_all()


def rate_of(dataset: Any, order: list[int], workers: int) -> tuple[float, float | None]:
    """Read in that order; the share of hits among the readings of samples read before, and the one predicted."""
    loader = data.DataLoader(dataset, batch_size=16, sampler=order, num_workers=workers)
    for _, labels in loader:
        assert len(labels)
    stats = dataset.stats()
    return stats.warm_hit_rate or 0.0, stats.predicted_hit_rate


def hit_rates(length: int, epochs: int) -> list[HitRate]:
    """Every policy on the kind of order it is for."""
    draw = np.random.default_rng(0)
    shuffled = [int(i) for _ in range(epochs) for i in draw.permutation(length)]
    weights = draw.lognormal(0.0, 1.0, length)
    weighted = draw.choice(length, epochs * length, p=weights / weights.sum()).tolist()
    again = {name: len(order) - len(set(order)) for name, order in (("shuffled", shuffled), ("weighted", weighted))}
    found = []
    for fraction in (0.25, 0.5, 0.75):
        places = int(fraction * length)
        for policy, theory in (("keep", keep_hits), ("lru", lru_hits)):
            for workers in (0, 4):
                with cache_of(length, places, policy) as dataset:
                    real, predicted = rate_of(dataset, shuffled, workers)
                case = f"{policy}, shuffled, {100 * fraction:.0f}% fits, {workers} workers"
                found.append(HitRate(case, real, theory(shuffled, places) / again["shuffled"], predicted))
        for workers in (0, 4):
            with cache_of(length, places, "clairvoyant") as dataset:
                foresee(dataset, weighted, weights)
                real, predicted = rate_of(dataset, weighted, workers)
            case = f"clairvoyant, weighted, {100 * fraction:.0f}% fits, {workers} workers"
            found.append(HitRate(case, real, belady_hits(weighted, places) / again["weighted"], predicted))
    return found


def readers(dataset: Any, length: int, scratch: Path) -> dict[str, Callable[[int], Any]]:
    """One way to get sample `index` for each arm; all give a private tensor and a label but the memcpy."""
    table = dataset.__dict__["_flatout_table"]
    words, shared = table.segment.words, table.segment.data
    # The tensor's bytes begin behind the head.
    lines = range(TABLE_AT, TABLE_AT + length * 8, 8)
    places = [words[line + Field.PLACE] + (words[line + Field.HEAD] >> 32) for line in lines]
    # Of the same making as the memory that the cache copies into, and like it used again for every get.
    memory: Any = torch.empty(SAMPLE_BYTES, dtype=torch.uint8).numpy()
    target = memoryview(memory)

    def memcpy(index: int) -> None:
        at = places[index]
        target[:] = shared[at : at + SAMPLE_BYTES]

    own = {index: (dataset[index][0].clone(), index) for index in range(length)}

    def from_dict(index: int) -> Any:
        image, label = own[index]
        return image.clone(), label

    arms: dict[str, Callable[[int], Any]] = {"memcpy": memcpy, "flatout, the cache": table.get}
    arms |= {"flatout, cached dataset": dataset.__getitem__, "dict per worker": from_dict}
    return arms | peer_readers(own, scratch)


def peer_readers(own: dict[int, Any], scratch: Path) -> dict[str, Callable[[int], Any]]:
    """lmdb and diskcache with the same raw bytes, made into a tensor in the same way."""
    if not install_peers():
        return {}
    sys.path.insert(0, str(PEERS))
    diskcache, lmdb = importlib.import_module("diskcache"), importlib.import_module("lmdb")
    folder = scratch / "lmdb"
    environment = lmdb.open(str(folder), map_size=2 << 30, readahead=False, meminit=False, sync=False)
    disk = diskcache.Cache(str(scratch / "diskcache"), size_limit=2 << 30, eviction_policy="none")
    with environment.begin(write=True) as writing:
        for index, (image, label) in own.items():
            raw = image.numpy().tobytes()
            writing.put(index.to_bytes(8, "little"), label.to_bytes(8, "little") + raw)
            disk.set(index, (raw, label))
    reading = environment.begin(buffers=True)

    def from_lmdb(index: int) -> Any:
        found = reading.get(index.to_bytes(8, "little"))
        return torch.frombuffer(bytearray(found[8:]), dtype=torch.uint8).view(SHAPE), int.from_bytes(
            found[:8], "little"
        )

    def from_diskcache(index: int) -> Any:
        raw, label = disk[index]
        return torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(SHAPE), label

    return {"lmdb": from_lmdb, "diskcache": from_diskcache}


def install_peers() -> bool:
    if PEERS.exists():
        return True
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(PEERS)]
    done = subprocess.run([*pip, "lmdb", "diskcache"], capture_output=True)
    return done.returncode == 0


def get_us(rounds: int, length: int) -> dict[str, list[float]]:
    """Microseconds per get, a block per round, all arms in turn. Every entry has been read before: checked and warm.

    Of processor time: all arms only compute and copy, and on a busy machine the longer ones are interrupted more often.
    """
    source = random.Random(0)
    with (
        cache_of(length, length + 10, "keep") as dataset,
        tempfile.TemporaryDirectory(prefix="flatout-bench-") as folder,
    ):
        for index in [*range(length)] * 2:
            dataset[index]
        arms = readers(dataset, length, Path(folder))
        taken: dict[str, list[float]] = {name: [] for name in arms}
        for round_index in range(rounds):
            order = source.sample(range(length), length)
            for name in list(arms) if round_index % 2 == 0 else list(reversed(arms)):
                read = arms[name]
                began = time.thread_time()
                for index in order:
                    read(index)
                taken[name].append((time.thread_time() - began) / length * 1e6)
        del arms
    return taken


def pss_of_readers(workers: int, ranks: int, length: int, way: str) -> int:
    """Bytes that all processes together take more than the same readers that keep nothing.

    With the cache, each rank finds it by its name and its workers are forked from it, as a loader does; else each
    worker has a dict of its own.
    """

    def read_all(dataset: Any) -> Any:
        kept = {index: dataset[index] for index in range(length)} if way == "dict per worker" else None
        for index in range(length):
            dataset[index]
        gc.collect()
        return kept, dataset

    def rank(_: int) -> Any:
        dataset: Any = Images(length)
        if way == "flatout":
            dataset = cached(dataset, budget_bytes(length, length + 10))
            assert is_cached(dataset)
        return lambda: read_all(dataset)

    return with_children(ranks, workers, rank)


def grown_bytes(workers: int, ranks: int, length: int, way: str) -> int:
    return pss_of_readers(workers, ranks, length, way) - pss_of_readers(workers, ranks, length, "nothing")


def with_children(ranks: int, workers: int, make: Callable[[int], Callable[[], Any]]) -> int:
    """Total PSS of `ranks` children and their `workers` each, once all workers have done what `make` gave them."""
    ready, go = os.pipe(), os.pipe()

    def worker(work: Callable[[], Any]) -> None:
        held = work()
        os.write(ready[1], os.getpid().to_bytes(4, "little"))
        os.close(go[1])
        os.read(go[0], 1)  # until the first parent closes its end
        del held

    def rank(number: int) -> None:
        work = make(number)
        mine = [forked(lambda: worker(work)) for _ in range(workers)]
        os.write(ready[1], os.getpid().to_bytes(4, "little"))
        os.close(go[1])
        for pid in mine:
            os.waitpid(pid, 0)
        release_all()

    children = [forked(lambda number=number: rank(number)) for number in range(ranks)]  # type: ignore[misc]
    os.close(go[0])
    os.close(ready[1])
    pids = [int.from_bytes(os.read(ready[0], 4), "little") for _ in range(ranks * (workers + 1))]
    if 0 in pids:
        raise SystemExit("a reader died")
    total = total_pss_bytes(pids)
    os.close(go[1])
    for pid in children:
        os.waitpid(pid, 0)
    os.close(ready[0])
    return total


def forked(work: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException as error:
        print(f"reader {os.getpid()}: {error!r}", file=sys.stderr)
    finally:
        os._exit(0)


def memory_rows(length: int) -> dict[str, dict[str, int]]:
    """Bytes per arrangement, for the shared cache and for a dict in every worker."""
    arrangements = [(workers, 1) for workers in WORKERS] + [(4, 2), (8, 2)]
    return {
        way: {f"{w} workers, {r} ranks": grown_bytes(w, r, length, way) for w, r in arrangements}
        for way in ("flatout", "dict per worker")
    }


def first_read_us(length: int) -> float:
    """A get by a process that has not read the entry: with its CRC checked."""
    with cache_of(length, length + 10, "keep") as dataset:
        for index in range(length):
            dataset[index]
        table = dataset.__dict__["_flatout_table"]
        began = time.perf_counter()
        for index in range(length):
            table.get(index)
        assert table.segment.words[Word.ITEMS] == length
        return (time.perf_counter() - began) / length * 1e6


def page(hits: list[HitRate], taken: dict[str, list[float]], first_us: float, pss: dict[str, dict[str, int]]) -> str:
    ratios = ratios_of(taken)
    hit_rows = [
        [h.case, percent(h.real), percent(h.optimum), f"{h.points_below:+.2f}", percent(h.predicted)] for h in hits
    ]
    get_rows = [
        [
            name,
            f"{statistics.median(us):.1f}",
            f"{ratios[name].mid:.2f} ({ratios[name].low:.2f} to {ratios[name].high:.2f})",
        ]
        for name, us in taken.items()
    ]
    names = list(pss["flatout"])
    pss_rows = [[name, *(f"{pss[way][name] / 1e6:.0f}" for way in pss)] for name in names]
    return "\n".join(
        [
            "## Hit rate, of samples read before\n",
            results.table(["", "measured", "optimum of the policy", "points below", "predicted beforehand"], hit_rows),
            f"## Getting a sample of {SAMPLE_BYTES / 1000:.0f} kB, {len(taken['memcpy'])} rounds in turn\n",
            results.table(["", "µs of processor time, median", "times a memcpy, 95% interval"], get_rows),
            f"A process's first get of an entry checks its CRC32: {first_us:.0f} µs, as does every 1024th get.\n",
            "## Memory of all processes together (PSS) beyond the same readers that keep nothing, MB\n",
            results.table(["", *pss], pss_rows),
        ]
    )


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f}%"


def ratios_of(taken: dict[str, list[float]]) -> dict[str, Estimate]:
    return {name: estimate([a / b for a, b in zip(us, taken["memcpy"], strict=True)]) for name, us in taken.items()}


def failures(hits: list[HitRate], taken: dict[str, list[float]], pss: dict[str, dict[str, int]]) -> list[str]:
    missed = [f"{h.case}: {h.points_below:.2f} points below the optimum" for h in hits if h.points_below > LIMIT_POINTS]
    for name, ratio in ratios_of(taken).items():
        if name.startswith("flatout") and ratio.mid > LIMIT_RATIO:
            missed.append(f"{name}: {ratio.mid:.2f} times a memcpy, not ≤ {LIMIT_RATIO}")
    shared = list(pss["flatout"].values())
    if max(shared) > LIMIT_GROWTH * shared[0]:
        missed.append(f"memory grows from {shared[0] / 1e6:.0f} to {max(shared) / 1e6:.0f} MB with workers and ranks")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--samples", type=int, default=600)
    parser.add_argument("--gate", action="store_true", help="exit 1 if a bar is missed")
    parser.add_argument("--results", type=Path, default=results.RESULTS, metavar="DIR")
    o = parser.parse_args()

    torch.set_num_threads(1)  # as in a loader's worker
    # What the collector would touch in every child is no one's cache.
    gc.freeze()
    pss = memory_rows(o.samples)
    # Before loaders hold whole batches: the cache then copies into that many samples' memory in turn, memcpy into one.
    taken, first_us = get_us(o.rounds, o.samples), first_read_us(o.samples)
    hits = hit_rates(o.samples, epochs=5)
    missed = failures(hits, taken, pss)
    text = page(hits, taken, first_us, pss)
    text += "".join(f"\nMissed: {sentence}." for sentence in missed) or "\nAll bars reached."
    print(text)
    document: dict[str, object] = {
        "versions": results.versions("torch", "numpy", "flatout"),
        "hits": hits,
        "get_us": taken,
    }
    document |= {"ratios": ratios_of(taken), "first_get_us": first_us, "pss_bytes": pss, "missed": missed}
    print(f"written: {results.write('cache', document, text, o.results)}", file=sys.stderr)
    return 1 if o.gate and missed else 0


if __name__ == "__main__":
    sys.exit(main())

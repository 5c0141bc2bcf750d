"""What is read of a dataset's caches: only what lies there, around single fetches."""

from __future__ import annotations

import functools
from collections import OrderedDict
from pathlib import Path
from typing import Any

from flatout.attach.recorder import Recorder
from flatout.attach.watch.caches import DatasetCaches
from flatout.attach.watch.fetch import CacheSchedule, sample_file_sizes
from flatout.store.recording import read_recording
from tests.unit.making import facts


@functools.lru_cache(maxsize=2)
def decode(index: int) -> int:
    return index


class Store:
    def __init__(self, most: int) -> None:
        self.hits = self.misses = 0
        self._kept: OrderedDict[int, int] = OrderedDict()
        self.most = most

    def get(self, index: int) -> int:
        if index in self._kept:
            self.hits += 1
            return self._kept[index]
        self.misses += 1
        self._kept[index] = index
        if len(self._kept) > self.most:
            self._kept.popitem(last=False)
        return index


class Frames:
    def __init__(self) -> None:
        self.cache = Store(3)
        self.cache_of_labels = dict.fromkeys(range(9), "label")
        self.calls = 0

    @property
    def costly(self) -> int:
        self.calls += 1
        return 1

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError("nobody may ask for this")


def looked(tmp_path: Path, dataset: Any, fetches: list[list[int]], fetch: Any) -> dict[str, dict[str, Any]]:
    """What is on record after these fetches, by the cache's name."""
    path = tmp_path / "one.rec"
    recorder = Recorder(str(path), facts(), 1 << 16)
    watch, samples = DatasetCaches(1, lambda: recorder), 0
    for indices in fetches:
        watch.look_before(dataset)
        for index in indices:
            fetch(index)
        samples += len(indices)
        watch.look_after(samples, len(indices))
    recorder.close()
    return {value["name"]: value for value in read_recording(path).values("cache")}


def test_new_and_evicted_keys_of_a_dict_are_counted_around_a_fetch(tmp_path: Path) -> None:
    frames = Frames()

    found = looked(tmp_path, frames, [[0, 1], [2, 3], [3, 2], [7, 8]], frames.cache.get)

    held = found["Frames.cache._kept"]
    assert (held["new_keys"], held["thrown_out"], held["seen_samples"]) == (6, 3, 8)
    assert held["first"] == [2, 2] and held["entries"] == 3
    assert (found["Frames.cache"]["hits"], found["Frames.cache"]["misses"]) == (2, 6)


def test_a_table_that_never_changes_is_no_cache_and_no_code_of_the_users_runs(tmp_path: Path) -> None:
    frames = Frames()

    found = looked(tmp_path, frames, [[0], [1]], frames.cache.get)

    assert "Frames.cache_of_labels" not in found
    assert frames.calls == 0


def test_what_functools_counts_is_taken_from_it(tmp_path: Path) -> None:
    decode.cache_clear()
    decode(100)  # before anybody looked

    found = looked(tmp_path, Frames(), [[0, 1], [1, 2]], decode)

    assert found["decode"]["kind"] == "lru_cache" and found["decode"]["capacity"] == 2
    assert (found["decode"]["hits"], found["decode"]["misses"]) == (1, 3)


def test_odd_datasets_are_left_alone(tmp_path: Path) -> None:
    class Slotted:
        __slots__ = ("paths",)

    for dataset in ([1, 2], Slotted(), 3, range(4)):
        kept = CacheSchedule(dataset, 1, lambda: Recorder(str(tmp_path / "never.rec"), facts()))
        kept.look_before()
        kept.look_after(1, 1)
        assert sample_file_sizes(dataset) == []
    assert not (tmp_path / "never.rec").exists()


def test_the_sizes_of_some_files_are_known(tmp_path: Path) -> None:
    class Named:
        def __init__(self, **named: Any) -> None:
            vars(self).update(named)

    files = [tmp_path / "deep" / f"{number}.npy" for number in range(20)]
    files[0].parent.mkdir()
    for file in files:
        file.write_bytes(b"x" * 100)

    assert sample_file_sizes(Named(paths=files)) == [100] * 6
    assert sample_file_sizes(Named(samples=[(str(file), 1) for file in files])) == [100] * 6
    assert sample_file_sizes(Named(root=str(tmp_path))) == [100] * 6
    assert sample_file_sizes(Named(names=["nothing", "there"], root=tmp_path / "gone")) == []

"""What a dataset is: other data, code or transform is another key, and the key is the same in every process."""

from __future__ import annotations

import argparse
import array
import collections
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data as data

from flatout.feed.cache.key import dataset_key


class Squares:
    def __getitem__(self, index: int) -> int:
        return index * index


class Half:
    def __call__(self, value: float) -> float:
        return value / 2


class Compose:
    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms


def test_other_data_code_or_transform_is_another_key(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    path.write_text("a")

    class Named(Squares):
        def __init__(self, transform: Any = None) -> None:
            super().__init__()
            self.paths = [path, str(path)]
            self.transform = transform

    class Other(Named):
        pass

    first = dataset_key(Named())
    keys = [first, dataset_key(Other()), dataset_key(Named(Half())), dataset_key(Named(lambda x: x + 1))]
    keys += [dataset_key(Named(lambda x: x + 2)), dataset_key(Named(Compose([Half(), Half()])))]
    path.write_text("bb")
    keys.append(dataset_key(Named()))

    assert len(set(keys)) == len(keys) and first == keys[0]
    assert dataset_key(Named()) == keys[-1]
    path.unlink()


def test_the_key_of_a_long_list_of_files_is_quick_and_sees_every_name() -> None:
    dataset = Squares()
    dataset.samples = [(f"/nowhere/{index}.jpg", index % 1000) for index in range(200_000)]  # type: ignore[attr-defined]
    first = dataset_key(dataset)

    dataset.samples[123_457] = ("/nowhere/other.jpg", 4)  # type: ignore[attr-defined]

    assert dataset_key(dataset) != first


def test_the_key_is_the_same_in_another_process(tmp_path: Path) -> None:
    script = (
        "from flatout.feed.cache.key import dataset_key\n"
        "class D:\n"
        "    def __init__(s): s.a = {'x', 'y', 'zz'}; s.f = lambda v: v in {'p', 'q', 'r'}\n"
        "print(dataset_key(D()))"
    )
    command = [sys.executable, "-c", script]
    children = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"PYTHONHASHSEED": seed}) for seed in "12"
    ]
    said = {child.communicate()[0] for child in children}

    assert len(said) == 1 and said != {""}


class Holding:
    def __init__(self, held: Any) -> None:
        self.held = held


def _fold(left_out: int) -> Any:
    """The names of a cross-validation's training part: the same number, the same first and last ones."""
    names = np.array([f"/nowhere/{index}.jpg" for index in range(5000)], dtype=object)
    return np.concatenate([names[: 1000 * left_out], names[1000 * (left_out + 1) :]])


def _nested(innermost: int) -> Any:
    return {"a": _nested_list(innermost, 14)}


def _nested_list(innermost: int, depth: int) -> Any:
    return [_nested_list(innermost, depth - 1)] if depth else innermost


@pytest.mark.parametrize(
    "make",
    [
        lambda part: range(50 * part, 50 * (part + 1)),
        _fold,
        lambda part: ((1.0 + part) * torch.eye(4)).to_sparse(),
        lambda part: np.float32(part),
        lambda part: np.ma.array([1, 2], mask=[part == 1, part == 2]),  # type: ignore[no-untyped-call]
        lambda part: collections.deque([part]),
        lambda part: array.array("i", [part]),
        lambda part: bytearray([part]),
        lambda part: [Path(f"/nowhere/{index * (part if index == 4097 else 1)}") for index in range(10_000)],
        lambda part: [torch.tensor(index * (part if index == 4097 else 1)) for index in range(10_000)],
        _nested,
    ],
    ids=[
        "range", "names", "sparse", "number", "masked", "deque", "array", "bytes", "paths", "tensors", "deep"
    ],
)  # fmt: skip
def test_other_contents_are_another_key(make: Callable[[int], Any]) -> None:
    first, second, again = (dataset_key(Holding(make(part))) for part in (1, 2, 1))

    assert first != second
    assert first == again


def test_two_parts_of_a_dataset_have_two_keys(tmp_path: Path) -> None:
    whole: Any = Squares()
    mapped = np.memmap(tmp_path / "data.bin", np.uint8, "w+", shape=(100,))

    parts = [data.Subset(whole, range(50)), data.Subset(whole, range(50, 100))]  # type: ignore[arg-type]

    assert dataset_key(parts[0]) != dataset_key(parts[1])
    assert dataset_key(Holding(mapped[:50])) != dataset_key(Holding(mapped[50:]))


SETTINGS = argparse.Namespace(size=64, rank=0)


class ReadsGlobals:
    def __getitem__(self, index: int) -> int:
        return _scaled(index)


def _scaled(index: int) -> int:
    return index * int(SETTINGS.size)


def test_a_global_that_is_read_is_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    first = dataset_key(ReadsGlobals())

    monkeypatch.setattr(SETTINGS, "rank", 1)
    on_another_rank = dataset_key(ReadsGlobals())
    monkeypatch.setattr(SETTINGS, "size", 32)

    assert on_another_rank == first
    assert dataset_key(ReadsGlobals()) != first


def test_what_a_class_is_made_around_is_part_of_the_key() -> None:
    def made(factor: int) -> Any:
        class Multiples:
            def __getitem__(self, index: int) -> int:
                return factor * index

        return Multiples()

    assert dataset_key(made(2)) == dataset_key(made(2)) != dataset_key(made(3))


def test_what_cannot_be_read_is_equal_to_itself_alone() -> None:
    def opened() -> Any:
        return threading.local()

    one, other = opened(), opened()

    assert dataset_key(Holding(one)) == dataset_key(Holding(one)) != dataset_key(Holding(other))
    assert dataset_key(Holding(threading.Lock())) == dataset_key(Holding(threading.Lock()))

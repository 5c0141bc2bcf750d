"""What a dataset is: other data, code or transform is another key, and the key is the same in every process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

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

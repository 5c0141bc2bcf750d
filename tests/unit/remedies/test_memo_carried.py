"""Results that one trial kept are found by the next, the same to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from flatout.remedies.memo import kept_calls as carried
from flatout.remedies.memo.content import is_same
from flatout.remedies.memo.kept_calls import CarriedResults

_NAME = "engine:Engine.targets"


@pytest.mark.parametrize(
    "result",
    [
        torch.tensor([0.1, -0.0, float("nan")]),
        torch.rand(3, 4, 5).to(torch.bfloat16),
        torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.zeros(0, 3),
        torch.tensor(7),
        {"a": [torch.ones(2), 3], "b": (torch.arange(4), "x", None), "size": torch.Size([1, 2])},
    ],
)
def test_what_was_kept_comes_back(tmp_path: Path, result: Any) -> None:
    key = (torch.Tensor, (torch.Size([2]), torch.float32, torch.device("cpu")), b"bits")
    large = (torch.arange(9, dtype=torch.uint8),)

    assert CarriedResults(torch, str(tmp_path / "new"), _NAME).save({key: (result, large, 0.5)}, 100)
    ((found_key, (found, found_large, took_s)),) = CarriedResults(torch, str(tmp_path / "new"), _NAME).load().items()

    assert found_key == key and took_s == 0.5
    assert is_same(torch, found, result) and torch.equal(found_large[0], large[0])


def test_of_each_function_there_is_a_file_and_the_first_one_counts(tmp_path: Path) -> None:
    ours, other = (CarriedResults(torch, str(tmp_path), name) for name in (_NAME, "engine:other"))

    assert ours.save({1: (torch.ones(1), (), 0.1)}, 4)
    assert ours.save({2: (torch.ones(1), (), 0.1)}, 4)

    assert set(ours.load()) == {1} and not other.load()
    assert len(list(tmp_path.iterdir())) == 1


def test_what_cannot_be_written_or_read_is_computed_again(tmp_path: Path) -> None:
    ours = CarriedResults(torch, str(tmp_path), _NAME)

    assert not ours.save({(lambda: None): (torch.ones(1), (), 0.1)}, 4)
    assert not ours.load()
    assert ours.save({1: (torch.ones(1), (), 0.1)}, 4)
    (file,) = tmp_path.glob("*.kept")
    file.write_bytes(file.read_bytes()[:-20])
    assert not ours.load()


def test_without_a_folder_or_with_too_much_nothing_is_carried(tmp_path: Path) -> None:
    kept = {1: (torch.ones(1), (), 0.1)}

    assert not CarriedResults(torch, None, _NAME).save(kept, 4) and not CarriedResults(torch, None, _NAME).load()
    assert not CarriedResults(torch, str(tmp_path), _NAME).save(kept, carried._MOST_BYTES + 1)
    assert not CarriedResults(torch, str(tmp_path), _NAME).save({}, 0)
    assert not list(tmp_path.iterdir())

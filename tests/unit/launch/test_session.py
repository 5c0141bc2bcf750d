"""Remedies within a block of the user's own code."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from flatout.errors import FlatoutError
from flatout.launch.session import session


def _init() -> object:
    return torch.utils.data.DataLoader.__dict__["__init__"]


def test_remedies_hold_within_the_block_and_no_longer() -> None:
    before = _init()

    with session(remedies={"loader.workers": 2, "loader.prefetch": 3}) as applied:
        loader = torch.utils.data.DataLoader([1, 2, 3])
        within = (loader.num_workers, loader.prefetch_factor)
        states = {state["id"]: state for state in applied.states}

    assert within == (2, 3)
    assert (loader.num_workers, loader.prefetch_factor) == (0, None), "as it was made, like any loader after the block"
    assert {state["state"] for state in states.values()} == {"applied"}
    assert any("num_workers 0" in str(told) for told in dict(states["loader.workers"]["live"]).values())
    assert _init() is before and torch.utils.data.DataLoader([1]).num_workers == 0


def test_they_end_with_the_block_whatever_happens() -> None:
    before = _init()

    with pytest.raises(RuntimeError, match="mine"), session(remedies={"loader.workers": 2}):
        raise RuntimeError("mine")

    assert _init() is before


def test_a_profile_is_read(tmp_path: Path) -> None:
    (tmp_path / "flatout.toml").write_text("[remedies]\nloader.workers = 3\n")

    with session(tmp_path / "flatout.toml"):
        assert torch.utils.data.DataLoader([1]).num_workers == 3


def test_a_mistake_is_said() -> None:
    with (
        pytest.raises(FlatoutError, match=r"loader\.workers must be a whole number"),
        session(remedies={"loader.workers": -1}),
    ):
        pass

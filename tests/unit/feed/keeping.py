"""A dataset to keep, a folder for its cache that is empty again after the test, and what was told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.data as data

from flatout.feed.cache import place as cache_place
from flatout.feed.cache.dataset import cached, is_cached
from flatout.feed.cache.table import release_all


class Squares(data.Dataset[Any]):
    """Counts its readings, which nothing in it depends on. A reading takes long enough to be worth keeping."""

    def __init__(self, length: int = 30, scale: int = 1) -> None:
        self.length = length
        self.scale = scale
        self.readings: list[int] = []

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.length:
            raise IndexError(index)
        self.readings.append(index)
        time.sleep(1e-4)
        return torch.full((50,), index * index * self.scale), f"sample {index}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(cache_place, "SHARED_MEMORY", str(tmp_path))
    yield tmp_path
    release_all()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def notes() -> list[str]:
    return []


def kept(dataset: Any, notes: list[str], **options: Any) -> Any:
    wrapped = cached(dataset, "8MB", note=notes.append, **options)
    assert is_cached(wrapped), notes
    return wrapped

"""How much memory the cache may take."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.feed.cache.place import default_budget_bytes, folder_free_bytes, parse_bytes
from tests.unit.feed.trees import tree

GB = 10**9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("20GB", 20 * GB),
        ("1.5 gb", 1.5 * GB),
        ("512MiB", 512 << 20),
        ("4K", 4000),
        ("17", 17),
        (10, 10),
        ("2GiB", 2 << 30),
    ],
)
def test_sizes_are_read(text: str | int, expected: float) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["much", "", "-3GB", "20 GB of it", 0, "0"])
def test_other_sizes_are_refused_and_quoted(text: str | int) -> None:
    with pytest.raises(ValueError, match="budget"):
        parse_bytes(text)


def test_the_default_is_at_most_half_of_what_is_free_and_what_the_folder_holds(tmp_path: Path) -> None:
    root = tree(tmp_path, {})
    free = folder_free_bytes(str(tmp_path))

    assert default_budget_bytes(str(tmp_path), root) == min((50_000_000 << 10) // 2, int(free * 0.9))
    assert default_budget_bytes(str(tmp_path / "nowhere"), root) == 0

"""How much memory the cache may take, from file trees made like cgroups of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.feed.cache.budget import default_budget_bytes, folder_free_bytes, memory, parse_bytes

GB = 10**9


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": "MemTotal: 64000000 kB\nMemAvailable: 50000000 kB\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


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


def test_cgroup_v2_counts_inactive_file_cache_as_free(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/job\n",
            "sys/fs/cgroup/job/memory.max": f"{10 * GB}\n",
            "sys/fs/cgroup/job/memory.current": f"{6 * GB}\n",
            "sys/fs/cgroup/job/memory.stat": f"anon 1\ninactive_file {2 * GB}\n",
        },
    )

    assert memory(root).free_bytes == 6 * GB and memory(root).limit_bytes == 10 * GB


def test_cgroup_v1_takes_the_tightest_level(tmp_path: Path) -> None:
    level = "sys/fs/cgroup/memory"
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/a/b\n0::/\n",
            f"{level}/a/memory.limit_in_bytes": f"{3 * GB}",
            f"{level}/a/memory.usage_in_bytes": f"{2 * GB}",
            f"{level}/a/memory.stat": f"total_inactive_file {GB // 2}\n",
            f"{level}/a/b/memory.limit_in_bytes": "9223372036854771712",
            f"{level}/a/b/memory.usage_in_bytes": f"{GB}",
        },
    )

    assert memory(root).free_bytes == 1.5 * GB


def test_without_a_limit_the_machine_s_memory_counts(tmp_path: Path) -> None:
    root = tree(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"})

    assert memory(root).free_bytes == 50_000_000 << 10


def test_the_default_is_at_most_half_of_what_is_free_and_what_the_folder_holds(tmp_path: Path) -> None:
    root = tree(tmp_path, {})
    free = folder_free_bytes(str(tmp_path))

    assert default_budget_bytes(str(tmp_path), root) == min((50_000_000 << 10) // 2, int(free * 0.9))
    assert default_budget_bytes(str(tmp_path / "nowhere"), root) == 0

"""How much memory there is, from file trees made like cgroups of both versions."""

from __future__ import annotations

from pathlib import Path

from flatout.feed.machine import free_bytes, memory
from tests.unit.feed.trees import tree

GB = 10**9


def test_cgroup_v2_counts_file_cache_as_free(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/job\n",
            "sys/fs/cgroup/job/memory.max": f"{10 * GB}\n",
            "sys/fs/cgroup/job/memory.current": f"{6 * GB}\n",
            "sys/fs/cgroup/job/memory.stat": f"anon 1\ninactive_file {GB}\nactive_file {GB}\n",
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


def test_where_nothing_is_told_nothing_is_short(tmp_path: Path) -> None:
    assert free_bytes(tmp_path) is None and memory(tmp_path).free_share == 1.0
    assert memory(tree(tmp_path, {})).free_share == 50 / 64

"""Container limits, read from made file trees: both versions cannot be had on one machine."""

from __future__ import annotations

from pathlib import Path

from flatout.telemetry.cgroup import CgroupSampler, cpus_allowed

GIB = 1 << 30


def tree(root: Path, cgroup: str, mountinfo: str, files: dict[str, str]) -> Path:
    proc = root / "proc" / "self"
    proc.mkdir(parents=True)
    (proc / "cgroup").write_text(cgroup)
    (proc / "mountinfo").write_text(mountinfo)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


V2_MOUNT = "30 25 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = (
    "33 25 0:30 {root} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "34 25 0:31 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)


def test_v2_takes_the_tightest_limit_on_the_way_up(tmp_path):
    root = tree(
        tmp_path,
        "0::/pod/box\n",
        V2_MOUNT,
        {
            "pod/cpu.max": "150000 100000\n",
            "pod/cpu.stat": "usage_usec 5\nthrottled_usec 2500000\n",
            "pod/memory.max": f"{8 * GIB}\n",
            "pod/memory.current": f"{3 * GIB}\n",
            "pod/memory.stat": f"anon 1\ninactive_file {GIB}\n",
            "pod/box/cpu.max": "max 100000\n",
            "pod/box/memory.max": f"{16 * GIB}\n",
            "pod/box/memory.events": "low 0\noom 3\noom_kill 2\n",
        },
    )

    sample = CgroupSampler(root=root).sample()

    assert (sample.cpu_quota_cores, sample.throttled_s) == (1.5, 2.5)
    assert (sample.memory_limit_bytes, sample.memory_current_bytes) == (8 * GIB, 3 * GIB)
    assert (sample.memory_cache_bytes, sample.oom_kills) == (GIB, 2)


def test_v2_without_limits_has_none(tmp_path):
    root = tree(tmp_path, "0::/\n", V2_MOUNT, {"cpu.stat": "usage_usec 5\n", "memory.max": "max\n"})

    sample = CgroupSampler(root=root).sample()

    assert sample.cpu_quota_cores is None and sample.memory_limit_bytes is None and sample.throttled_s is None


def test_v1_in_a_container_that_sees_its_own_folder_as_the_mount(tmp_path):
    root = tree(
        tmp_path,
        "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n",
        V1_MOUNTS.format(root="/docker/abc"),
        {
            "cpu,cpuacct/cpu.cfs_quota_us": "400000\n",
            "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "cpu,cpuacct/cpu.stat": "nr_periods 4\nnr_throttled 1\nthrottled_time 1500000000\n",
            "memory/memory.limit_in_bytes": f"{4 * GIB}\n",
            "memory/memory.usage_in_bytes": f"{GIB}\n",
            "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 77\n",
            "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
        },
    )

    sample = CgroupSampler(root=root).sample()

    assert (sample.cpu_quota_cores, sample.throttled_s) == (4.0, 1.5)
    assert (sample.memory_limit_bytes, sample.memory_current_bytes) == (4 * GIB, GIB)
    assert (sample.memory_cache_bytes, sample.oom_kills) == (77, 1)


def test_v1_without_limits_has_none(tmp_path):
    root = tree(
        tmp_path,
        "5:memory:/\n4:cpu,cpuacct:/\n",
        V1_MOUNTS.format(root="/"),
        {
            "cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )

    sample = CgroupSampler(root=root).sample()

    assert sample.cpu_quota_cores is None and sample.memory_limit_bytes is None


def test_v1_controllers_win_over_an_empty_v2_tree(tmp_path):
    root = tree(
        tmp_path,
        "5:memory:/a\n4:cpu,cpuacct:/a\n0::/\n",
        V1_MOUNTS.format(root="/") + V2_MOUNT.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified"),
        {
            "cpu,cpuacct/a/cpu.cfs_quota_us": "50000\n",
            "cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
            "memory/a/memory.limit_in_bytes": "1000\n",
            "unified/cpu.stat": "usage_usec 1\n",
        },
    )

    sample = CgroupSampler(root=root).sample()

    assert sample.cpu_quota_cores == 0.5 and sample.memory_limit_bytes == 1000


def test_cpus_allowed_is_the_smaller_of_quota_and_affinity(tmp_path):
    small = tree(tmp_path / "a", "0::/\n", V2_MOUNT, {"cpu.max": "50000 100000"})
    large = tree(tmp_path / "b", "0::/\n", V2_MOUNT, {"cpu.max": "99900000 100000"})

    assert cpus_allowed(root=small) == 0.5
    assert 1 <= cpus_allowed(root=large) < 999


def test_nothing_readable_is_not_measured(tmp_path):
    sample = CgroupSampler(root=tmp_path).sample()

    assert all(getattr(sample, name) is None for name in type(sample).__slots__)


def test_this_machine_can_be_read():
    assert cpus_allowed() > 0

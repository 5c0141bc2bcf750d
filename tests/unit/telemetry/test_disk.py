from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from flatout.telemetry.disk import DiskSampler, NetworkFsSampler, filesystem_of, open_data_files


def diskstats(read_sectors: int, busy_ms: int) -> str:
    return (
        f"259 0 nvme0n1 10 0 {read_sectors} 5 10 0 800 5 0 {busy_ms} 9 0 0 0 0\n"
        f"259 1 nvme0n1p1 10 0 {read_sectors} 5 10 0 800 5 0 {busy_ms} 9 0 0 0 0\n"
        "7 0 loop0 1 0 8 0 1 0 8 0 0 0 0 0 0 0 0\n"
        "8 0 sda 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    )


def test_whole_used_disks_only_with_rates_and_busy_share(tmp_path):
    for name in ("nvme0n1", "loop0", "sda"):
        (tmp_path / "block" / name).mkdir(parents=True)
    (tmp_path / "diskstats").write_text(diskstats(1000, 100))
    now_s = [0.0]
    sampler = DiskSampler(tmp_path, tmp_path, clock=lambda: now_s[0])
    first = sampler.sample()
    (tmp_path / "diskstats").write_text(diskstats(3000, 600))
    now_s[0] = 2.0

    (sample,) = sampler.sample()

    assert first[0].busy_share is None
    assert (sample.read_bytes_per_s, sample.write_bytes_per_s, sample.busy_share) == (2000 * 512 / 2, 0.0, 0.25)


def test_nfs_reads_are_the_servers_bytes(tmp_path):
    def put(served: int) -> None:
        (tmp_path / "self").mkdir(exist_ok=True)
        (tmp_path / "self" / "mountstats").write_text(
            "device proc mounted on /proc with fstype proc\n"
            "device srv:/data mounted on /data with fstype nfs4 statvers=1.1\n"
            f"\tbytes:\t9 9 0 0 {served} 50 2 2\n"
        )

    put(1000)
    now_s = [0.0]
    sampler = NetworkFsSampler(tmp_path, clock=lambda: now_s[0])
    sampler.sample()
    put(5000)
    now_s[0] = 4.0

    sample = sampler.sample()

    assert (sample.read_bytes_per_s, sample.write_bytes_per_s) == (1000.0, 0.0)


def test_without_nfs_nothing_is_measured(tmp_path):
    sampler = NetworkFsSampler(tmp_path)
    sampler.sample()

    assert sampler.sample().read_bytes_per_s is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/data/x.npy", ("ext4", "/", False, False)),
        ("/mnt/my data/x", ("nfs4", "/mnt/my data", True, None)),
        ("/mnt/my data/fast/x", ("xfs", "/mnt/my data/fast", False, True)),
        ("/mnt/my database/x", ("ext4", "/", False, False)),
        ("/over/x", ("fuse.sshfs", "/over", True, None)),
    ],
)
def test_the_longest_and_latest_mount_holds_a_path(tmp_path, path, expected):
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mountinfo").write_text(
        "1 0 259:1 / / rw - ext4 /dev/nvme0n1p1 rw\n"
        "2 1 0:50 / /mnt/my\\040data rw shared:1 - nfs4 srv:/data rw,vers=4\n"
        "3 2 8:0 / /mnt/my\\040data/fast rw - xfs /dev/none rw\n"
        "4 1 8:0 / /over rw - xfs /dev/none rw\n"
        "5 1 0:51 / /over rw - fuse.sshfs me@host: rw\n"
    )
    for folder, rotational in (("nvme0n1", "0"), ("sda", "1")):
        (tmp_path / "devices" / folder / "queue").mkdir(parents=True)
        (tmp_path / "devices" / folder / "queue" / "rotational").write_text(rotational)
    (tmp_path / "devices" / "nvme0n1" / "nvme0n1p1").mkdir()
    (tmp_path / "dev" / "block").mkdir(parents=True)
    (tmp_path / "dev" / "block" / "259:1").symlink_to(tmp_path / "devices" / "nvme0n1" / "nvme0n1p1")
    (tmp_path / "dev" / "block" / "8:0").symlink_to(tmp_path / "devices" / "sda")

    facts = filesystem_of(path, proc=tmp_path, sys=tmp_path)

    assert (facts.type, facts.mount_point, facts.is_network, facts.is_rotational) == expected


def test_this_machine_can_be_read():
    facts = filesystem_of(Path(__file__))

    assert facts is not None and facts.type and not facts.is_network


def test_open_and_mapped_data_files_are_found_and_code_is_not(tmp_path):
    names = ["images.bin", "mapped.npy", "code.py", "lib.so.1", "out.bin"]
    paths = {name: tmp_path / name for name in names}
    for path in paths.values():
        path.write_bytes(b"x" * 4096)
    mapped = paths["mapped.npy"].open("rb")
    memory = mmap.mmap(mapped.fileno(), 0, prot=mmap.PROT_READ)
    mapped.close()
    handles = [paths[name].open("rb") for name in ("images.bin", "code.py", "lib.so.1")]
    handles.append(paths["out.bin"].open("wb"))
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)

    found = open_data_files([os.getpid()])

    memory.close()
    os.close(folder)
    for handle in handles:
        handle.close()
    assert {path for path in found if path.startswith(str(tmp_path))} == {
        str(paths["images.bin"]),
        str(paths["mapped.npy"]),
    }


def test_vanished_processes_have_no_files():
    assert open_data_files([2**22 + 1]) == set()

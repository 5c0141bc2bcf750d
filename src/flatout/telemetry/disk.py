"""Storage: block devices, network file systems, where a path lives, and which data files a process has open."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from flatout.records.sample import DiskSample, FilesystemFacts, NetworkFsSample
from flatout.store.mounts import is_network, mount_of, read_mounts
from flatout.telemetry.procfile import ProcFile, Rate, list_folder, read_file

_SECTOR_BYTES = 512
_VIRTUAL_DISKS = ("loop", "ram", "zram", "fd", "sr")
_MOST_FILES = 200
# What a Python process has open besides data: code, libraries, fonts, locales, devices, and our own records.
_NO_DATA_SUFFIX = re.compile(r"\.(py|pyc|pyo|pyd|so|mo|ttf|otf|cubin|ptx)$|\.so\.|\.log$")
_NO_DATA_START = ("/dev/", "/proc/", "/sys/", "/run/", "/etc/", "/usr/", "/lib/", "/lib64/", "/memfd:", "/SYSV", "/[")
_NO_DATA_PART = ("/site-packages/", "/dist-packages/", "/lib/python", "/.flatout/")


class _Disk:
    """One block device's counters."""

    def __init__(self) -> None:
        self._read, self._written, self._busy = Rate(), Rate(), Rate()

    def sample(self, fields: list[bytes], now_s: float) -> DiskSample:
        busy_ms_per_s = self._busy.of(float(fields[12]), now_s)
        return DiskSample(
            major=int(fields[0]),
            minor=int(fields[1]),
            read_bytes_per_s=self._read.of(float(fields[5]) * _SECTOR_BYTES, now_s),
            write_bytes_per_s=self._written.of(float(fields[9]) * _SECTOR_BYTES, now_s),
            busy_share=None if busy_ms_per_s is None else min(1.0, busy_ms_per_s / 1000),
        )


class DiskSampler:
    """Whole disks that have ever been used; partitions are left out, for they are counted in their disk."""

    def __init__(
        self,
        proc: Path = Path("/proc"),
        sys: Path = Path("/sys"),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._sys = sys
        self._clock = clock
        self._diskstats = ProcFile(proc / "diskstats")
        self._disks: dict[bytes, _Disk | None] = {}

    def sample(self) -> tuple[DiskSample, ...]:
        now_s = self._clock()
        samples = []
        for line in (self._diskstats.read() or b"").split(b"\n"):
            fields = line.split()
            if len(fields) < 14 or (fields[5] == b"0" and fields[9] == b"0"):
                continue
            disk = self._disk(fields)
            if disk is not None:
                samples.append(disk.sample(fields, now_s))
        return tuple(samples)

    def _disk(self, fields: list[bytes]) -> _Disk | None:
        if fields[2] not in self._disks:
            name = fields[2].decode(errors="replace")
            is_whole = (self._sys / "block" / name.replace("/", "!")).exists() and not name.startswith(_VIRTUAL_DISKS)
            self._disks[fields[2]] = _Disk() if is_whole else None
        return self._disks[fields[2]]


class NetworkFsSampler:
    """Bytes the NFS client moved over the wire. Other network file systems publish no such counter: not measured."""

    def __init__(self, proc: Path = Path("/proc"), clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._mountstats = ProcFile(proc / "self" / "mountstats")
        self._read, self._written = Rate(), Rate()

    def sample(self) -> NetworkFsSample:
        now_s = self._clock()
        read, written = _nfs_bytes(self._mountstats.read())
        return NetworkFsSample(self._read.of(read, now_s), self._written.of(written, now_s))


def _nfs_bytes(mountstats: bytes | None) -> tuple[float | None, float | None]:
    rows = [line.split()[1:] for line in (mountstats or b"").split(b"\n") if line.lstrip().startswith(b"bytes:")]
    rows = [row for row in rows if len(row) >= 6]
    if not rows:
        return None, None
    return sum(float(row[4]) for row in rows), sum(float(row[5]) for row in rows)


def filesystem_of(path: str | Path, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> FilesystemFacts | None:
    """The mount that holds `path` (links followed), or None where the mounts cannot be read."""
    mount = mount_of(Path(path), read_mounts(proc / "self" / "mountinfo"))
    if mount is None:
        return None
    is_rotational = _is_rotational(sys, mount.device, mount.source)
    return FilesystemFacts(mount.type, mount.mount_point, is_network(mount.type), is_rotational)


def _is_rotational(sys: Path, device: str, source: str) -> bool | None:
    if device.startswith("0:") and source.startswith("/dev/"):
        # btrfs and friends show a device of their own; the disk is the one they were mounted from.
        try:
            number = os.stat(source).st_rdev
        except OSError:
            return None
        device = f"{os.major(number)}:{os.minor(number)}"
    folder = sys / "dev" / "block" / device
    for queue in (folder / "queue", folder.resolve().parent / "queue"):
        try:
            return (queue / "rotational").read_text().strip() == "1"
        except OSError:
            continue
    return None


def open_data_files(pids: Iterable[int], proc: Path = Path("/proc"), mapped: bool = True) -> set[str]:
    """Regular files these processes have open for reading or mapped, code and devices aside; 200 at most."""
    files: set[str] = set()
    for pid in pids:
        folder = proc / str(pid)
        paths = _open_for_reading(folder) + (_mapped(folder) if mapped else [])
        files.update(path for path in paths if _may_be_data(path))
        if len(files) >= _MOST_FILES:
            break
    return set(sorted(files)[:_MOST_FILES])


def _open_for_reading(folder: Path) -> list[str]:
    paths = []
    for number in list_folder(folder / "fd"):
        try:
            target = os.readlink(folder / "fd" / number)
            if target.startswith("/") and _is_read_file(folder / "fdinfo" / number):
                paths.append(target)
        except OSError:
            continue
    return paths


def _is_read_file(fdinfo: Path) -> bool:
    """Judged by the open flags: asking the file system itself could hang on a dead network mount."""
    _, found, rest = fdinfo.read_text().partition("flags:")
    flags = int(rest.split()[0], 8) if found else os.O_WRONLY
    return flags & os.O_ACCMODE != os.O_WRONLY and not flags & os.O_DIRECTORY


def _mapped(folder: Path) -> list[str]:
    text = (read_file(folder / "maps") or b"").decode(errors="surrogateescape")
    paths: set[str] = set()
    programs: set[str] = set()
    for line in text.split("\n"):
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[5].startswith("/"):
            (programs if "x" in fields[1] else paths).add(fields[5])
    # A program's file is mapped in several parts, only one of them executable.
    return list(paths - programs)


def _may_be_data(path: str) -> bool:
    return not (
        path.startswith(_NO_DATA_START)
        or path.endswith(" (deleted)")
        or any(part in path for part in _NO_DATA_PART)
        or _NO_DATA_SUFFIX.search(path)
    )

"""The mount table of a process, and which kind of file system a folder lies on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_MOUNTINFO = Path("/proc/self/mountinfo")
_NETWORK = re.compile(
    "nfs4?|cifs|smb3|smbfs|9p|afs|ceph|lustre|gpfs|beegfs|glusterfs|pvfs2|orangefs|wekafs|panfs|vboxsf|virtiofs|ncpfs"
)
# Drivers in user space name themselves after "fuse."; these keep their data elsewhere.
_NETWORK_FUSE = re.compile(
    r"^fuse\.(sshfs|s3fs|gcsfuse|goofys|rclone|ceph|glusterfs|juicefs|mount-s3|blobfuse2?|alluxio)"
)


def is_network(fstype: str) -> bool:
    return bool(_NETWORK.fullmatch(fstype)) or bool(_NETWORK_FUSE.match(fstype))


class Mount(NamedTuple):
    """One mount. `root` is the folder of the file system that is mounted, `options` those of the file system."""

    device: str
    root: str
    mount_point: str
    type: str
    source: str
    options: tuple[str, ...]


def read_mounts(mountinfo: Path = _MOUNTINFO) -> list[Mount]:
    """In the order of mounting; empty where the table cannot be read."""
    try:
        return parse_mounts(mountinfo.read_bytes().decode(errors="surrogateescape"))
    except OSError:
        return []


def parse_mounts(mountinfo: str) -> list[Mount]:
    mounts = []
    for line in mountinfo.split("\n"):
        before, found, after = line.partition(" - ")
        fields, tail = before.split(" "), after.split(" ")
        if found and len(fields) >= 5 and len(tail) >= 2:
            options = tuple(tail[2].split(",")) if len(tail) > 2 else ()
            mounts.append(Mount(fields[2], _plain(fields[3]), _plain(fields[4]), tail[0], _plain(tail[1]), options))
    return mounts


def mount_of(path: Path, mounts: list[Mount]) -> Mount | None:
    """The mount that holds `path` (links followed), or None where that is not told."""
    target = path.resolve()
    above = [mount for mount in mounts if target.is_relative_to(mount.mount_point)]
    # A later mount on the same point hides the earlier one.
    return max(reversed(above), key=lambda mount: len(Path(mount.mount_point).parts), default=None)


def _plain(text: str) -> str:
    """Space, tab, newline and backslash are written as octal escapes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)

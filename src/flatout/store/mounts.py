"""Which kind of file system a folder lies on, from /proc/self/mountinfo."""

from __future__ import annotations

import re
from pathlib import Path

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


def filesystem_of(path: Path, mountinfo: str | None = None) -> str | None:
    """The type of the file system that `path` lies on, or None where that is not told."""
    if mountinfo is None:
        try:
            mountinfo = _MOUNTINFO.read_text(errors="surrogateescape")
        except OSError:
            return None
    target = path.resolve()
    best: tuple[int, str] | None = None
    for line in mountinfo.splitlines():
        left, separator, right = line.partition(" - ")
        fields = left.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = Path(_unescape(fields[4]))
        # A later mount on the same point hides the earlier one.
        if target.is_relative_to(point) and (best is None or len(point.parts) >= best[0]):
            best = (len(point.parts), right.split(" ")[0])
    return best[1] if best else None


def _unescape(text: str) -> str:
    """Spaces and the like are written as \\040."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)

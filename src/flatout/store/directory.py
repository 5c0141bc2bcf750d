"""Where runs are kept: making a run's directory, finding, measuring and pruning them."""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flatout.errors import FlatoutError
from flatout.records.message import Message, message, verbatim
from flatout.store.manifest import Manifest, read_manifest, write_json, write_manifest
from flatout.store.mounts import is_network, mount_of, parse_mounts, read_mounts
from flatout.store.redaction import redact

DEFAULT_ROOT = Path(".flatout", "runs")
# Where `flatout fix` files its searches, and the record of each.
FIXES, FIX_RECORD = Path(".flatout", "fix"), "fix.json"
SUMMARY = "summary.json"
_PARTS = ("proc", "telemetry")
# What an id begins with.
_TIME = "%Y%m%d-%H%M%S"
_DATED = re.compile(r"\d{8}-\d{6}-")
_BLOCK_BYTES = 1 << 20


@dataclass(slots=True)
class RunDirectory:
    """A run that is being recorded. `work` is where records go (FLATOUT_RUN_DIR), on a network disk not `path`."""

    path: Path
    work: Path
    notices: tuple[Message, ...] = ()

    @property
    def id(self) -> str:
        return self.path.name

    def begin(self, manifest: Manifest) -> Manifest:
        """Write the manifest of a run that starts now, signed with this process."""
        signed = replace(
            manifest,
            notices=(*manifest.notices, *self.notices),
            pid=os.getpid(),
            pid_start=process_start(os.getpid()),
            host=socket.gethostname(),
            work=None if self.work == self.path else str(self.work),
        )
        write_manifest(self.path, signed)
        return signed

    def update(self, manifest: Manifest) -> None:
        """Write what has become known of a run that goes on, for who looks at it now or after a crash."""
        write_manifest(self.path, manifest)

    def finish(self, manifest: Manifest) -> Manifest:
        """Bring the records home, cut their unused tails, and write the manifest of an ended run."""
        for recording in sorted((self.work / "proc").glob("*.rec")):
            compact(recording)
        if self.work != self.path:
            manifest = self._bring_home(manifest)
        finished = replace(manifest, state="finished")
        write_manifest(self.path, finished)
        return finished

    def _bring_home(self, manifest: Manifest) -> Manifest:
        try:
            for part in _PARTS:
                shutil.copytree(self.work / part, self.path / part, dirs_exist_ok=True)
        except OSError as error:
            notice = message(
                "run.records_not_copied", path=str(self.path), error=verbatim(str(error)), work=str(self.work)
            )
            self.notices = (*self.notices, notice)
            return replace(manifest, notices=(*manifest.notices, notice))
        shutil.rmtree(self.work, ignore_errors=True)
        self.work = self.path
        return replace(manifest, work=None)

    def write_summary(self, summary: dict[str, Any]) -> None:
        write_json(self.path / SUMMARY, redact(summary))


def create_run(
    script: str,
    root: Path | None = None,
    out: Path | None = None,
    clock: Callable[[], float] = time.time,
    mountinfo: str | None = None,
) -> RunDirectory:
    """Make the directory of a new run: `out` itself if given, else a fresh one under `root` (.flatout/runs).

    Where it cannot be made, a temporary directory takes its place, with a notice.
    """
    root = (root or DEFAULT_ROOT).absolute()
    run_id = _new_id(script, clock, root)
    notices: tuple[Message, ...] = ()
    path = out.absolute() if out else root / run_id
    try:
        _make(path)
    except OSError as error:
        wanted = path
        path = fallback_root() / run_id
        _make(path)
        why = verbatim(str(error.strerror or error))
        notices = (message("run.folder_not_writable", folder=str(wanted), error=why, path=str(path)),)
    mount = mount_of(path, read_mounts() if mountinfo is None else parse_mounts(mountinfo))
    if mount is None or not is_network(mount.type):
        return RunDirectory(path, path, notices)
    work = Path(tempfile.mkdtemp(prefix="flatout-"))
    _make(work)
    notice = message("run.folder_on_network", folder=str(path.parent), kind=mount.type)
    return RunDirectory(path, work, (*notices, notice))


def fallback_root() -> Path:
    """A private directory of this user under the temporary one, for when the usual place cannot be written."""
    path = Path(tempfile.gettempdir(), f"flatout-{os.getuid()}", "runs")
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        found = path.parent.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
            return path
    except OSError:
        pass
    # Somebody else holds that name.
    return Path(tempfile.mkdtemp(prefix="flatout-"), "runs")


def run_paths(root: Path | None = None) -> list[Path]:
    """All stored runs, newest first. Without `root`: those here and those in the fallback place."""
    roots = [root] if root else [DEFAULT_ROOT, Path(tempfile.gettempdir(), f"flatout-{os.getuid()}", "runs")]
    found: list[Path] = []
    for folder in roots:
        try:
            found += [entry for entry in folder.iterdir() if (entry / "manifest.json").is_file()]
        except OSError:
            continue
    return sorted(found, key=lambda path: (_began(path), path.name, str(path)), reverse=True)


def _began(path: Path) -> str:
    """As ids begin. A run that came under another name has its time in its manifest; one without either is old."""
    if _DATED.match(path.name):
        return path.name[:15]
    try:
        return time.strftime(_TIME, time.localtime(read_manifest(path).started_unix_s))
    except (FlatoutError, TypeError, ValueError, OverflowError, OSError):
        return ""


def find_run(name: str, root: Path | None = None) -> Path:
    """The run of this id, the beginning of an id, a path, or "last"."""
    if Path(name, "manifest.json").is_file():
        return Path(name)
    paths = run_paths(root)
    if name == "last" and paths:
        return paths[0]
    matches = [path for path in paths if path.name.startswith(name)]
    exact = [path for path in matches if path.name == name]
    if len(exact or matches) == 1:
        return (exact or matches)[0]
    why = (
        f"{len(matches)} runs begin with it, give more of the id" if matches else "`flatout runs` lists what is stored"
    )
    raise FlatoutError(f"no single run {name!r}: {why}")


def is_recorded(path: Path, manifest: Manifest) -> bool:
    """Is this run still being recorded? If its watcher ran on another host, we cannot know and say yes."""
    if manifest.state != "running":
        return False
    if manifest.host not in (None, socket.gethostname()):
        return True
    if manifest.pid is not None and is_alive(manifest.pid, manifest.pid_start):
        return True
    # The script outlives a watcher that was killed.
    folder = Path(manifest.work or path, "proc")
    pids = (re.match(r"\d+(?=-)", recording.name) for recording in folder.glob("*.rec"))
    return any(is_alive(int(pid[0])) for pid in pids if pid)


def size_bytes(path: Path) -> int:
    """What the run takes on the disk; the blocks in use, not the length of files with holes."""
    total = 0
    for file in path.rglob("*"):
        try:
            total += file.lstat().st_blocks * 512
        except OSError:
            continue
    return total


def prune(
    root: Path | None = None, keep: int | None = None, older_than_s: float | None = None, now_s: float | None = None
) -> list[Path]:
    """Delete stored runs and return their paths: all but the `keep` newest, and of those only the older ones.

    A run that is being recorded, or whose manifest this flatout cannot read, is never touched.
    """
    if keep is not None and keep < 0:
        raise FlatoutError(f"--keep must be at least 0, got {keep}")
    now_s = time.time() if now_s is None else now_s
    gone = []
    readable = 0
    for path in run_paths(root):
        try:
            manifest = read_manifest(path)
        except FlatoutError:
            continue
        readable += 1
        is_young = older_than_s is not None and now_s - manifest.started_unix_s < older_than_s
        if readable <= (keep or 0) or is_young or is_recorded(path, manifest):
            continue
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            gone.append(path)
    return gone


def _make(path: Path) -> None:
    for part in _PARTS:
        (path / part).mkdir(parents=True, exist_ok=True)
    if any((path / "proc").iterdir()):
        raise FlatoutError(f"{str(path)!r} already holds a run: give another --out")
    # A directory may exist and yet take no file (read-only mount, quota).
    with tempfile.TemporaryFile(dir=path / "proc"):
        pass


def _new_id(script: str, clock: Callable[[], float], root: Path) -> str:
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(script).stem).strip("-.")[:40] or "run"
    begun = f"{time.strftime(_TIME, time.localtime(clock()))}-{stem}"
    while True:
        drawn = f"{begun}-{os.urandom(2).hex()}"
        # Two runs that begin in the same second may draw the same.
        if not os.path.lexists(root / drawn):
            return drawn


# Whether the process that writes a run is still alive.


def process_start(pid: int) -> str | None:
    """A mark that tells this process from a later one with the same number: its start in kernel ticks."""
    fields = _stat_fields(pid)
    return fields[19] if len(fields) > 19 else None


def is_alive(pid: int, start: str | None = None) -> bool:
    """Is this process running? With `start`, a later process of the same number does not count."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    if _stat_fields(pid)[:1] == ["Z"]:
        return False  # ended, and not yet waited for
    now = process_start(pid)
    return start is None or now is None or now == start


def _stat_fields(pid: int) -> list[str]:
    try:
        # The command's name is in parentheses and may hold anything.
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


# Gives back the room that a recording reserved and never used.


def compact(path: Path) -> int:
    """Cut the unused tail of a dead process's recording and return the bytes gained.

    The file of a process that may be alive is left alone: cutting it under the writer's mapping would be a SIGBUS.
    """
    # Brings numpy in: not before the script has started.
    from flatout.store.recording import MAX_HEADER_BYTES, SLOT_BYTES, parse_header

    try:
        with path.open("r+b", buffering=0) as file:
            header = parse_header(os.pread(file.fileno(), MAX_HEADER_BYTES + SLOT_BYTES, 0), str(path))
            if header is None or not _writer_is_dead(header.facts):
                return 0
            size = os.fstat(file.fileno()).st_size
            end = _end_of_use(file.fileno(), header.slots_at, size, SLOT_BYTES)
            os.ftruncate(file.fileno(), end)
            return size - end
    except (OSError, FlatoutError):
        return 0


def _writer_is_dead(facts: dict[str, object]) -> bool:
    pid = facts.get("pid")
    return isinstance(pid, int) and facts.get("host") == socket.gethostname() and not is_alive(pid)


def _end_of_use(fd: int, start: int, size: int, slot_bytes: int) -> int:
    """Where the last slot ends that is not zero."""
    at = size
    while at > start:
        begin = max(start, at - _BLOCK_BYTES)
        used = len(os.pread(fd, at - begin, begin).rstrip(b"\0"))
        if used:
            return min(size, start + -(-(begin + used - start) // slot_bytes) * slot_bytes)
        at = begin
    return min(start, size)

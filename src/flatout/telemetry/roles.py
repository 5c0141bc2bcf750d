"""Who is who in a process tree, judged by command lines: the trainers, their loader workers, and the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from flatout.records.sample import Role

_SPAWNED = b"multiprocessing.spawn"
_FORKSERVER = b"multiprocessing.forkserver"
_HELPERS = (b"multiprocessing.resource_tracker", b"torch._inductor", b"compile_worker")
_LAUNCHERS = (b"torchrun", b"torch.distributed.", b"accelerate", b"deepspeed", b"horovodrun", b"mpirun")


class Known(NamedTuple):
    """A process as the judgement sees it. `command` is /proc/<pid>/cmdline as it stands."""

    ppid: int
    command: bytes


def roles_of(tree: Mapping[int, Known], root_pid: int) -> dict[int, Role]:
    """A forked worker bears its parent's command line, a spawned one names multiprocessing; a rank has a launcher."""
    workers = {pid for pid in tree if _is_worker(tree, pid)}
    # A spawned process with workers of its own is a rank (torch.multiprocessing.spawn), not a worker.
    ranks = {tree[pid].ppid for pid in workers} & {pid for pid in workers if _SPAWNED in tree[pid].command}
    mains = ranks | {pid for pid in tree if pid not in workers and _is_trainer(tree, pid)}
    if not mains and root_pid in tree:
        mains = {root_pid}
    return {pid: "main" if pid in mains else "worker" if pid in workers else "other" for pid in tree}


def _is_worker(tree: Mapping[int, Known], pid: int) -> bool:
    process, parent = tree[pid], tree.get(tree[pid].ppid)
    if parent is None or not process.command or any(name in process.command for name in _HELPERS):
        return False
    return _SPAWNED in process.command or (process.command == parent.command and _is_python(process.command))


def _is_trainer(tree: Mapping[int, Known], pid: int) -> bool:
    """A Python process of its own with nothing but shells and launchers above it."""
    command = tree[pid].command
    if not _is_python(command) or _is_launcher(command) or _FORKSERVER in command:
        return False
    above = tree.get(tree[pid].ppid)
    while above is not None:
        if _is_python(above.command) and not _is_launcher(above.command):
            return False
        above = tree.get(above.ppid)
    return True


def _is_python(command: bytes) -> bool:
    return b"python" in command.split(b"\0", 1)[0].rsplit(b"/", 1)[-1]


def _is_launcher(command: bytes) -> bool:
    # Only what is run counts: `train.py --backend accelerate` is a trainer.
    return any(name in part for part in command.split(b"\0")[:4] for name in _LAUNCHERS)

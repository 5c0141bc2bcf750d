"""Checkpoints are written by another process while the training goes on, and appear in one moment.

`torch.save` to a path serialises into memory at the call. A process of its own writes that beside the target, brings it
to the disk and renames it. Until then everybody sees the old file, whole; a crash at any moment leaves the old one or
the new one. Calls of the script that look at the file (load, open, stat, copy, list, remove), programs and processes
that it starts, barriers between ranks, and its end wait for what is under way. A rename of a file under way is done
when it is there: many a script saves under a passing name itself.

Lossless: the bytes are those of the state at the call, and what can be wrong at the call (a path, permissions, disk
space, something that cannot be pickled) raises there as it would. What goes wrong later raises at the next save or at
the next look at the file.

Left as it is: saving to an open file or in the old format; a target that is no plain file of one's own with one name;
a checkpoint for which memory or the disk has no room twice.
"""

from __future__ import annotations

import atexit
import builtins
import inspect
import io
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...records.message import message
from ..answers import Answer, Report, by_finding
from ..site import Refused, Site
from ..traits import Bottleneck, Pauses, Traits

if TYPE_CHECKING:
    from .saver import Saver


ID = "checkpoint.async"
TITLE = "Checkpoints written in the background, and whole or not at all"
SAFETY = "lossless"
TRAITS = Traits(Bottleneck.PAUSES, pauses=Pauses.AT_EVENTS)
# Serialising stays at the call. Of the pause 28 and 40% went for many small tensors on a GPU, 57% for such on a CPU, 82
# to 86% for large ones.
PART = (0.25, 0.6)


def applies(report: Report) -> Answer:
    saves = [site for site in report.pauses if site.op == "checkpoint"]
    total_s = sum(site.total_s for site in saves)
    otherwise = message("checkpoint.short", total_s=total_s) if saves else message("checkpoint.none")
    return by_finding(ID, otherwise)(report)


def apply(site: Site, value: Any) -> None:
    # Here and not above: whoever lists the remedies needs none of it.
    from .saver import Saver

    if not hasattr(os, "memfd_create") or not sys.executable:
        raise Refused(message("checkpoint.needs_linux"))
    saver = Saver()
    first = [install_waits(site, saver)]

    def save(original: Any, *args: Any, **kwargs: Any) -> Any:
        given = _bind(original, args, kwargs)
        path = _path_of(given) if given is not None else None
        if given is None or path is None:
            return original(*args, **kwargs)
        while first:
            site.guarded(first.pop())

        def write(file: Any) -> None:
            given.arguments["f"] = file
            original(*given.args, **given.kwargs)

        if saver.is_mine and _save_aside(site.torch, saver, path, write):
            site.guarded(lambda: _tell(site, saver))
            return None
        if saver.concerns(path, below=False):
            saver.wait_all()
        return original(*args, **kwargs)

    for owner in (site.torch, site.torch.serialization):
        site.around(owner, "save", save)
    site.each_step(lambda step: saver.poll())
    atexit.register(saver.finish)
    site.undo(lambda: atexit.unregister(saver.finish))
    site.undo(saver.finish)


def _bind(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments | None:
    """None for a call that is wrong: torch says so."""
    try:
        return inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return None


def _path_of(given: inspect.BoundArguments) -> str | None:
    """None for what is left to torch: an open file, the old format."""
    is_old = not given.arguments.get("_use_new_zipfile_serialization", True)
    if is_old or not isinstance(given.arguments["f"], str | os.PathLike):
        return None
    path = os.fspath(given.arguments["f"])
    return path if isinstance(path, str) else None


def _save_aside(torch: Any, saver: Saver, path: str, write: Callable[[Any], None]) -> bool:
    # Threads take turns: whether torch makes check sums is one setting for all of them.
    with saver.turn:
        # Torch can leave them out from 2.6 on; then the writer makes them.
        asks = getattr(torch.serialization, "get_crc32_options", None)
        makes_sums = asks is not None and bool(asks())
        return saver.save(path, partial(_write_without_sums, torch, write) if makes_sums else write, makes_sums)


def _write_without_sums(torch: Any, write: Callable[[Any], None], file: Any) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        write(file)
    finally:
        torch.serialization.set_crc32_options(True)


def _tell(site: Site, saver: Saver) -> None:
    # The first few, and then ever more rarely: a script may save in every step.
    if saver.saved & (saver.saved - 1) == 0:
        site.tell(saves=saver.saved, mebibytes_each=round(saver.saved_bytes / saver.saved / 2**20, 2))


# Calls that look at a file wait until it is written, so a script that saves and then copies, lists or loads sees no
# difference. Programs and processes that are started, barriers between ranks, and objects that ranks send each other
# wait for all files, since another process may look at any of them. A module that imported such a function by name
# (`from os import listdir`) before torch was imported is found at the first save.

# Of the arguments, which are paths; with `below`, all in a folder of that name is meant as well.
_ONE_FILE: tuple[tuple[Any, str], ...] = (
    (os, "stat"), (os, "lstat"), (os, "open"), (os, "chmod"), (os, "truncate"), (os, "utime"), (os, "access"),
    (os, "chown"), (os, "lchown"), (os, "setxattr"), (os, "getxattr"), (os, "listxattr"), (os, "removexattr"),
    (builtins, "open"), (io, "open"),
)  # fmt: skip
_ONE_BELOW: tuple[tuple[Any, str], ...] = (
    (os, "remove"), (os, "unlink"), (os, "listdir"), (os, "scandir"), (os, "rmdir"),
)  # fmt: skip
_TWO: tuple[tuple[Any, str], ...] = ((os, "link"), (os, "symlink"))
_RENAMES: tuple[tuple[Any, str], ...] = ((os, "rename"), (os, "replace"))
_OTHERS: tuple[tuple[Any, str], ...] = (
    (os, "system"), (os, "execv"), (os, "execve"), (os, "posix_spawn"), (os, "posix_spawnp"),
    (subprocess.Popen, "__init__"),
)  # fmt: skip
# Processes that are not forked off this one: a forked one knows what is under way.
_STARTS = ("multiprocessing.popen_spawn_posix", "multiprocessing.popen_forkserver")
_BETWEEN_RANKS = (
    "barrier", "monitored_barrier", "broadcast_object_list", "all_gather_object", "gather_object",
    "scatter_object_list", "send_object_list",
)  # fmt: skip

# Python asks these sets which functions take an open folder, or leave links alone.
_ABLE = (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids)


def install_waits(site: Site, saver: Saver) -> Callable[[], None]:
    """Gives back what is to be called before the first save."""
    before = {(owner, name): getattr(owner, name, None) for owner, name in (*_ONE_FILE, *_ONE_BELOW, *_TWO, *_RENAMES)}
    for places, make in (
        (_ONE_FILE, partial(_waiting, saver, 1, False)),
        (_ONE_BELOW, partial(_waiting, saver, 1, True)),
        (_TWO, partial(_waiting, saver, 2, True)),
        (_RENAMES, partial(_renaming, saver)),
        (_OTHERS, partial(_waiting_for_all, saver)),
    ):
        for owner, name in places:
            _replace(site, owner, name, make)
    site.replace(site.torch, "load", partial(_waiting, saver, 1, False))
    site.after_import("torch.distributed.distributed_c10d", lambda module: _between_ranks(site, saver, module))
    for module in _STARTS:
        site.after_import(module, lambda found: site.replace(found.Popen, "_launch", partial(_waiting_for_all, saver)))
    return lambda: _reach_taken_over(site, {id(value): getattr(*place) for place, value in before.items()})


def _reach_taken_over(site: Site, replaced: dict[int, Any]) -> None:
    """`replaced` is {number of the original: what stands for it}."""
    for module in list(sys.modules.values()):
        root = str(getattr(module, "__name__", "")).partition(".")[0]
        if root in sys.stdlib_module_names or root == "torch":
            continue
        for name, value in list(getattr(module, "__dict__", {}).items()):
            stands = replaced.get(id(value))
            if stands is not None:
                site.replace(module, name, lambda original, stands=stands: stands)  # type: ignore[misc]


def _replace(site: Site, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    original = getattr(owner, name, None)
    site.replace(owner, name, make)
    for able in _ABLE:
        if original in able:
            able.add(getattr(owner, name))
            site.undo(partial(able.discard, getattr(owner, name)))


def _between_ranks(site: Site, saver: Saver, module: Any) -> None:
    for name in _BETWEEN_RANKS:
        for owner in (module, site.torch.distributed):
            if hasattr(owner, name):
                site.replace(owner, name, partial(_waiting_for_all, saver))


def _waiting(saver: Saver, paths: int, below: bool, original: Any) -> Callable[..., Any]:
    pending, failures = saver.pending, saver.failures

    def call(*args: Any, **kwargs: Any) -> Any:
        if (pending or failures) and _concerned(saver, args[:paths], kwargs, below):
            saver.wait_all()
        return original(*args, **kwargs)

    return call


def _renaming(saver: Saver, original: Any) -> Callable[..., Any]:
    pending, failures = saver.pending, saver.failures

    def call(*args: Any, **kwargs: Any) -> Any:
        if (pending or failures) and _concerned(saver, args[:2], kwargs, below=True):
            if not kwargs and _promise_rename(saver, *args):
                return None
            saver.wait_all()
        return original(*args, **kwargs)

    return call


def _promise_rename(saver: Saver, *paths: Any) -> bool:
    try:
        source, target = map(os.fsdecode, paths)
        return saver.rename(source, target)
    except (OSError, ValueError, TypeError):
        return False


def _concerned(saver: Saver, paths: tuple[Any, ...], kwargs: dict[str, Any], below: bool) -> bool:
    if saver.is_own_call:
        return False
    try:
        if kwargs.get("dir_fd") is not None or kwargs.get("src_dir_fd") is not None:
            return saver.concerns(-1, below=True)
        named = (*paths, *(kwargs[name] for name in ("path", "file", "f", "src", "dst") if name in kwargs))
        files = [path for path in named or (".",) if isinstance(path, str | bytes | int | os.PathLike)]
        return any(saver.concerns(path, below) for path in files)
    except (OSError, ValueError, TypeError):
        return False  # no path at all: what is called says so


def _waiting_for_all(saver: Saver, original: Any) -> Callable[..., Any]:
    pending = saver.pending

    def call(*args: Any, **kwargs: Any) -> Any:
        if pending and not saver.is_own_call:
            saver.wait_all()
        return original(*args, **kwargs)

    return call

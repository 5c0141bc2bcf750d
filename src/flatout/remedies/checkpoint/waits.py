"""Calls that look at a file wait until it is written: a script that saves and then copies, lists or loads sees no
difference.

Programs and processes that are started, barriers between ranks, and objects that ranks send each other wait for all
files: somebody else may look at any of them. A module that took such a function over by name (`from os import listdir`)
before torch was there is found at the first save.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from ..site import Site
from .writing import Saver

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


def install(site: Site, saver: Saver) -> Callable[[], None]:
    """Gives back what is to be called before the first save."""
    before = {(owner, name): getattr(owner, name, None) for owner, name in (*_ONE_FILE, *_ONE_BELOW, *_TWO, *_RENAMES)}
    for owner, name in _ONE_FILE:
        _replace(site, owner, name, functools.partial(_waiting, saver, 1, False))
    for owner, name in _ONE_BELOW:
        _replace(site, owner, name, functools.partial(_waiting, saver, 1, True))
    for owner, name in _TWO:
        _replace(site, owner, name, functools.partial(_waiting, saver, 2, True))
    for owner, name in _RENAMES:
        _replace(site, owner, name, functools.partial(_renaming, saver))
    for owner, name in _OTHERS:
        _replace(site, owner, name, functools.partial(_waiting_for_all, saver))
    site.replace(site.torch, "load", functools.partial(_waiting, saver, 1, False))
    site.after_import("torch.distributed.distributed_c10d", lambda module: _between_ranks(site, saver, module))
    for module in _STARTS:
        site.after_import(
            module, lambda found: site.replace(found.Popen, "_launch", functools.partial(_waiting_for_all, saver))
        )
    return lambda: _reach_taken_over(site, {id(one): getattr(*place) for place, one in before.items()})


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
            site.undo(functools.partial(able.discard, getattr(owner, name)))


def _between_ranks(site: Site, saver: Saver, module: Any) -> None:
    for name in _BETWEEN_RANKS:
        for owner in (module, site.torch.distributed):
            if hasattr(owner, name):
                site.replace(owner, name, functools.partial(_waiting_for_all, saver))


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
            if not kwargs and _is_promised(saver, *args):
                return None
            saver.wait_all()
        return original(*args, **kwargs)

    return call


def _is_promised(saver: Saver, *paths: Any) -> bool:
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
        return any(saver.concerns(path, below) for path in named or (".",) if _is_path(path))
    except (OSError, ValueError, TypeError):
        return False  # no path at all: what is called says so


def _is_path(value: Any) -> bool:
    return isinstance(value, str | bytes | int | os.PathLike)


def _waiting_for_all(saver: Saver, original: Any) -> Callable[..., Any]:
    pending = saver.pending

    def call(*args: Any, **kwargs: Any) -> Any:
        if pending and not saver.is_own_call:
            saver.wait_all()
        return original(*args, **kwargs)

    return call

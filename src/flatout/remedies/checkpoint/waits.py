"""Calls that look at a file wait until it is written: a script that saves and then copies, lists or loads sees no
difference.

Programs that are started, and barriers between ranks, wait for all files: somebody else may look at any of them.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import subprocess
from collections.abc import Callable
from typing import Any

from ..site import Site
from .writing import Saver

# Of the arguments, which are paths; with `below`, all in a folder of that name is meant as well.
_ONE_FILE: tuple[tuple[Any, str], ...] = (
    (os, "stat"), (os, "lstat"), (os, "open"), (os, "chmod"), (os, "truncate"), (os, "utime"), (os, "access"),
    (builtins, "open"), (io, "open"),
)  # fmt: skip
_ONE_BELOW: tuple[tuple[Any, str], ...] = (
    (os, "remove"), (os, "unlink"), (os, "listdir"), (os, "scandir"), (os, "rmdir"),
)  # fmt: skip
_TWO: tuple[tuple[Any, str], ...] = ((os, "link"), (os, "symlink"))
_RENAMES: tuple[tuple[Any, str], ...] = ((os, "rename"), (os, "replace"))
_OTHERS: tuple[tuple[Any, str], ...] = (
    (os, "system"), (os, "execv"), (os, "execve"), (os, "posix_spawn"), (subprocess.Popen, "__init__"),
)  # fmt: skip


# Python asks these sets which functions take an open folder, or leave links alone.
_ABLE = (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids)


def install(site: Site, saver: Saver) -> None:
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
    site.after_import("torch.distributed.distributed_c10d", lambda module: _at_barriers(site, saver, module))


def _replace(site: Site, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    original = getattr(owner, name, None)
    site.replace(owner, name, make)
    for able in _ABLE:
        if original in able:
            able.add(getattr(owner, name))
            site.undo(functools.partial(able.discard, getattr(owner, name)))


def _at_barriers(site: Site, saver: Saver, module: Any) -> None:
    for name in ("barrier", "monitored_barrier"):
        site.replace(module, name, functools.partial(_waiting_for_all, saver))
        distributed = site.torch.distributed
        if hasattr(distributed, name):
            site.replace(distributed, name, functools.partial(_waiting_for_all, saver))


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

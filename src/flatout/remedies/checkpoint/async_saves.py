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
import inspect
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..answers import Answer, by_finding
from ..site import Refused
from ..values import Flag

if TYPE_CHECKING:
    from ...records.report import RunReport
    from ..site import Site

ID = "checkpoint.async"
TITLE = "Checkpoints written in the background, and whole or not at all"
SAFETY = "lossless"
VALUE = Flag()
# Serialising stays at the call. Of the pause 28 and 40% went for many small tensors on a GPU, 57% for such on a CPU, 82
# to 86% for large ones.
PART = (0.25, 0.6)


def applies(report: RunReport) -> Answer:
    saves = [site for site in report.pauses if site.op == "checkpoint"]
    total_s = sum(site.total_s for site in saves)
    otherwise = f"writing checkpoints took {total_s:.3g} s in all" if saves else "no checkpoint was written"
    return by_finding(report, ID, otherwise)


def apply(site: Site, value: Any) -> None:
    # Here and not above: whoever lists the remedies needs none of it.
    from . import waits as checkpoint_waits
    from .writing import Saver

    if not hasattr(os, "memfd_create") or not sys.executable:
        raise Refused("needs Linux, and an interpreter that can be started again")
    saver = Saver()
    first = [checkpoint_waits.install(site, saver)]
    for owner in (site.torch, site.torch.serialization):
        site.replace(owner, "save", lambda original: _make_save(site, saver, first, original))
    site.each_step(lambda step: saver.poll())
    atexit.register(saver.finish)
    site.undo(lambda: atexit.unregister(saver.finish))
    site.undo(saver.finish)


def _make_save(site: Site, saver: Any, first: list[Callable[[], None]], original: Any) -> Any:
    signature = inspect.signature(original)

    def save(*args: Any, **kwargs: Any) -> Any:
        path = _path_of(signature, args, kwargs) if site.in_force else None
        if path is None:
            return original(*args, **kwargs)
        while first:
            site.guarded(first.pop(), lambda: None)
        if saver.is_mine and _is_under_way(site.torch, saver, path, original, signature, args, kwargs):
            site.guarded(lambda: _tell(site, saver), lambda: None)
            return None
        if saver.concerns(path, below=False):
            saver.wait_all()
        return original(*args, **kwargs)

    return save


def _is_under_way(
    torch: Any,
    saver: Any,
    path: str,
    original: Any,
    signature: inspect.Signature,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> bool:
    # Threads take turns: whether torch makes check sums is one setting for all of them.
    with saver.turn:
        sums = _makes_sums(torch)
        serialise = partial(_serialise, torch, sums, original, signature, args, kwargs)
        return bool(saver.save(path, serialise, sums))


def _path_of(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """None for what is left to torch: an open file, the old format, a call that is wrong."""
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return None
    if not given.get("_use_new_zipfile_serialization", True) or not isinstance(given["f"], str | os.PathLike):
        return None
    path = os.fspath(given["f"])
    return path if isinstance(path, str) else None


def _makes_sums(torch: Any) -> bool:
    """Whether torch would put check sums into the archive and can leave them out (from 2.6): the writer makes them."""
    asks = getattr(torch.serialization, "get_crc32_options", None)
    return asks is not None and bool(asks())


def _serialise(
    torch: Any,
    sums: bool,
    original: Any,
    signature: inspect.Signature,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    file: Any,
) -> None:
    given = signature.bind(*args, **kwargs)
    given.arguments["f"] = file
    if not sums:
        original(*given.args, **given.kwargs)
        return
    torch.serialization.set_crc32_options(False)
    try:
        original(*given.args, **given.kwargs)
    finally:
        torch.serialization.set_crc32_options(True)


def _tell(site: Site, saver: Any) -> None:
    # The first few, and then ever more rarely: a script may save in every step.
    if saver.saved & (saver.saved - 1) == 0:
        site.tell(saves=saver.saved, mebibytes_each=round(saver.saved_bytes / saver.saved / 2**20, 2))

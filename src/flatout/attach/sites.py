"""Which line of the user's code a call came from, and running totals per line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType

from . import wire
from .narrow_dtype import DtypeFit
from .recorder import Output

_PACK = wire.packer("site").pack
_KIND = wire.KINDS["site"][0]
_ATTACH = os.path.dirname(os.path.abspath(__file__))
_OURS = tuple(os.path.join(os.path.dirname(_ATTACH), name) + os.sep for name in ("attach", "remedies", "feed"))
_STDLIB = os.path.dirname(os.__file__)
MOST_FRAMES = 200
# How much a frame is the user's own: their code, then a library they use, then torch and Python itself.
SYSTEM, LIBRARY, USER = 0, 1, 2
_ranks: dict[str, int] = {}
# Slices of a run are as long as this, later a share of the time so far: their number grows with its logarithm.
_SLICE_S, _SLICE_SHARE = 1.0, 0.1


def rank_of(filename: str) -> int:
    """Is this file the user's code (2), an installed library (1), or torch, Python, flatout (0)?"""
    rank = _ranks.get(filename)
    if rank is None:
        rank = _ranks[filename] = _look_at(filename)
    return rank


def _look_at(filename: str) -> int:
    if filename.startswith("<"):
        return USER if filename in ("<stdin>", "<string>") else SYSTEM
    path = os.path.abspath(filename)
    torch_folder = os.path.dirname(getattr(sys.modules.get("torch"), "__file__", "") or "/nowhere/")
    if path.startswith((*_OURS, torch_folder + os.sep)):
        return SYSTEM
    if "site-packages" in path or "dist-packages" in path:
        return LIBRARY
    return SYSTEM if path.startswith(_STDLIB + os.sep) else USER


def is_users(filename: str) -> bool:
    return rank_of(filename) == USER


def user_frame(frame: FrameType | None, most: int = MOST_FRAMES) -> FrameType | None:
    """Of so many, the innermost frame of the user's own code; failing that of a library; failing that the first."""
    first, library = frame, None
    for _ in range(most):
        if frame is None:
            break
        rank = rank_of(frame.f_code.co_filename)
        if rank == USER:
            return frame
        if rank == LIBRARY and library is None:
            library = frame
        frame = frame.f_back
    return library or first


@dataclass(slots=True, eq=False)
class Site:
    """Running totals of one kind of call at one line."""

    number: int
    count: int = 0
    bytes: int = 0
    pinned: int = 0
    non_blocking: int = 0
    window_steps: int = 0
    seconds: float = 0.0
    longest_s: float = 0.0
    dirty: bool = False
    is_pinned: bool = False
    is_non_blocking: bool = False
    stream_asked: bool = False
    place: int = -1
    narrow: DtypeFit | None = None

    def add(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds
        if seconds > self.longest_s:
            self.longest_s = seconds
        self.dirty = True

    def add_alike(self, count: int, seconds: float, size: int) -> None:
        """That many more of the same kind, with their bytes."""
        self.count += count
        self.seconds += seconds
        self.bytes += size
        self.pinned += count * self.is_pinned
        self.non_blocking += count * self.is_non_blocking
        self.dirty = True


class Sites:
    def __init__(self, output: Callable[[], Output]) -> None:
        self._output = output
        # By the caller's code and instruction: a dict lookup instead of a walk up the stack.
        self._near: dict[tuple[str, CodeType, int], Site] = {}
        self._by_line: dict[tuple[str, str, int], Site] = {}
        self.window_steps = 0  # in which hidden syncs were looked for
        self._began_s = self._slice_s = -1.0  # when the first slice began, and the last
        self._slice = 0  # the index of its first step

    def forget(self) -> None:
        self._near.clear()
        self._by_line.clear()
        self._began_s = self._slice_s = -1.0
        self._slice = 0

    def at(self, op: str, frame: FrameType) -> Site:
        """The site of `op` for a call made from `frame`, which may lie in a library."""
        if rank_of(frame.f_code.co_filename) != USER:
            # The same library line may be reached from many user lines: no shortcut.
            user = user_frame(frame) or frame
            return self._on_line(op, user)
        key = (op, frame.f_code, frame.f_lasti)
        site = self._near.get(key)
        if site is None:
            site = self._near[key] = self._on_line(op, frame)
        return site

    def _on_line(self, op: str, frame: FrameType) -> Site:
        code = frame.f_code
        key = (op, code.co_filename, frame.f_lineno or 0)
        site = self._by_line.get(key)
        if site is None:
            site = self._by_line[key] = Site(len(self._by_line))
            place = {"file": os.path.abspath(code.co_filename), "line": key[2], "function": code.co_name}
            self._output().text("site", {"id": site.number, "op": op, **place})
        return site

    def flush(self, index: int, now: float) -> None:
        """Bring the totals in the recording up to date, after step `index`."""
        for (op, _, _), site in self._by_line.items():
            if op == "hidden" and site.window_steps != self.window_steps:
                site.window_steps, site.dirty = self.window_steps, True
            if site.dirty:
                body = _PACK(
                    _KIND, 0, 0, site.number, site.count, int(site.seconds * 1e9), int(site.longest_s * 1e9),
                    site.bytes, site.pinned, site.non_blocking, site.window_steps, self._slice,
                )  # fmt: skip
                site.place = self._output().put(site.place, body)
                site.dirty = False
        self._begin_slice(index, now)

    def _begin_slice(self, index: int, now: float) -> None:
        """Leave the totals as they are now on record, if the last slice is long enough: the next ones go elsewhere."""
        if self._began_s < 0:
            self._began_s = self._slice_s = now
        if now - self._slice_s < max(_SLICE_S, _SLICE_SHARE * (now - self._began_s)):
            return
        self._slice_s, self._slice = now, max(0, index + 1)
        for site in self._by_line.values():
            site.place = -1

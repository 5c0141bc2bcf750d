"""Lists that grow from step to step: what keeps the results of a training alive.

Only the length of a list is looked at, and what its last element is. Nothing is kept of it, and nothing of the script's
own is called: no `len` or `[...]` that a class of the script defines.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from inspect import CO_OPTIMIZED
from itertools import islice
from types import FrameType
from typing import Any

from ..sites import is_users

_MOST_VISITS = 400  # in one frame
_DEEPEST = 3  # self.history.losses
_MOST_NAMED = 32  # entries of a dict that are looked into
_MOST_TOLD = 8
_KEEPS_COPIES = sys.version_info < (3, 13)
# By these a script gets the very copy that a frame keeps of its variables.
_ASKING = frozenset(("locals", "vars", "dir", "eval", "exec"))


class Holder:
    """A list as it was at the end of a window."""

    __slots__ = ("bytes", "element", "file", "first", "function", "has_graph", "last", "list_id", "name")

    def __init__(self, frame: FrameType, name: str, list_id: int) -> None:
        self.file, self.function = frame.f_code.co_filename, frame.f_code.co_name
        self.name = name
        self.list_id = list_id
        self.first = self.last = 0
        self.element, self.has_graph, self.bytes = "", False, 0


class Holders:
    """Those that the frames of one sampled step can reach."""

    def __init__(self, torch: Any) -> None:
        self._tensor = torch.Tensor
        self._seen: dict[int, Holder] = {}
        self._looked: set[int] = set()
        self._variables: dict[str, Any] | None = None  # Python's copy of those of the frame that was looked at last

    def look_again(self) -> None:
        """From now on every frame is looked at once more."""
        self._looked.clear()

    def forget_variables(self) -> None:
        """Up to Python 3.12 a frame keeps the copy of its variables that it was asked for, tensors included.

        Not in the call of the trace function that asked for it: after that, Python writes the copy back.
        """
        variables, self._variables = self._variables, None
        if variables is not None:
            variables.clear()

    def look(self, frame: FrameType) -> bool:
        """Look at what a frame of the script holds; False if it was looked at before. Called by its trace function."""
        self.forget_variables()
        if id(frame) in self._looked:
            return False
        self._looked.add(id(frame))
        code = frame.f_code
        is_copied = bool(code.co_flags & CO_OPTIMIZED) and _KEEPS_COPIES
        if is_copied and not _ASKING.isdisjoint(code.co_names):
            return True  # the script may have that copy as well
        variables = frame.f_locals
        self._variables = variables if is_copied else None
        for name, value in islice(_reachable(variables), _MOST_VISITS):
            if type(value) is list or type(value) is deque:
                self._note(frame, name, value)
        return True

    def growing(self, before: dict[int, tuple[str, int, int]], index: int) -> Iterator[tuple[Holder, float]]:
        """Those that have grown, with elements a step; `before` is how long they were in earlier windows, and is kept.

        A list within one window grew in one step.
        """
        for holder in list(self._seen.values()):
            known = before.get(holder.list_id)
            per_step = float(holder.last - holder.first)
            if known is not None and known[0] == holder.name and index > known[2]:
                per_step = (holder.last - known[1]) / (index - known[2])
            before[holder.list_id] = holder.name, holder.last, index
            if per_step >= 0.5 and holder.element:
                yield holder, per_step

    def _note(self, frame: FrameType, name: str, value: Any) -> None:
        holder = self._seen.get(id(value))
        if holder is None or holder.name != name:
            if len(self._seen) >= _MOST_VISITS:
                return
            holder = self._seen[id(value)] = Holder(frame, name, id(value))
            holder.first = len(value)
        holder.last = len(value)
        if value:
            holder.element, holder.has_graph, holder.bytes = self._kind_of(value[-1])

    def _kind_of(self, element: Any) -> tuple[str, bool, int]:
        """A tensor, an array, or neither, which is of no interest; whether it has a graph, and its bytes."""
        parts = element if type(element) is tuple or type(element) is list else (element,)
        for part in parts[:4]:
            if isinstance(part, self._tensor):
                return "tensor", part.grad_fn is not None, part.numel() * part.element_size()
            if type(part).__module__ == "numpy":
                return "array", False, int(getattr(part, "nbytes", 0))
        return "", False, 0


def _reachable(local: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What these variables hold, and the attributes of the script's own objects, with their names."""
    waiting = deque((name, value, 0) for name, value in list(local.items()))
    met: set[int] = set()
    while waiting:
        name, value, depth = waiting.popleft()
        yield name, value
        if depth >= _DEEPEST or id(value) in met:
            continue
        met.add(id(value))
        if type(value) is dict and len(value) <= _MOST_NAMED:
            # Without the key: it may be anything, and the name is written down.
            waiting.extend((f"{name}[...]", part, depth + 1) for part in list(value.values()))
        elif _is_own(value):
            waiting.extend((f"{name}.{key}", part, depth + 1) for key, part in list(vars(value).items()))


def _is_own(value: Any) -> bool:
    kind = type(value)
    if not isinstance(getattr(value, "__dict__", None), dict) or isinstance(value, type):
        return False
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is not None and is_users(file)


def describe_holders(holders: Holders, before: dict[int, tuple[str, int, int]], index: int) -> list[dict[str, object]]:
    """The growing ones, those with a graph first."""
    found = sorted(holders.growing(before, index), key=lambda grown: (not grown[0].has_graph, -grown[0].bytes))
    return [
        {
            "name": holder.name,
            "file": os.path.abspath(holder.file),
            "function": holder.function,
            "per_step": round(per_step, 3),
            "element": holder.element,
            "has_graph": holder.has_graph,
            "bytes": holder.bytes,
        }
        for holder, per_step in found[:_MOST_TOLD]
    ]

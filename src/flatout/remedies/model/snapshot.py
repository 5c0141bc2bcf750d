"""What a forward pass reads besides its arguments, and whether it is still so.

A recorded call holds addresses and the path that Python took once; one that is made twice has to find the second time
what it found the first. So all that it may read is kept and compared: plain values on modules, on their configuration
objects and among globals, which tensors are where, whether they are trained, hooks, and what is switched to evaluation.
"""

from __future__ import annotations

from operator import is_
from types import FunctionType
from typing import Any

from ...records.message import Message, message

_PLAIN = (bool, int, float, str, bytes, type(None))
_CONTAINERS = (dict, list, set)
_OWN_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_HELD = ("_parameters", "_buffers", "_modules")
_MOST_ENTRIES = 200
_DEEPEST_CALLS = 3


class ModelSnapshot:
    """As it is now."""

    def __init__(self, torch: Any, module: Any) -> None:
        self._torch = torch
        # What every module has; hooks and what it holds are looked at on their own.
        self._left_out = {*vars(torch.nn.Module()), "_compiled_call_impl"} - {"training"}
        self._plain: tuple[list[dict[Any, Any]], list[Any], list[Any]] = ([], [], [])
        self._same: tuple[list[dict[Any, Any]], list[Any], list[Any]] = ([], [], [])
        self._owners: dict[str, list[str]] = {"plain": [], "same": []}
        self._containers: list[Any] = []
        self._of_classes: list[tuple[type, str, Any]] = []
        self._lists: list[tuple[list[Any], list[Any]]] = []
        self._tensors: list[Any] = []
        self._seen: set[int] = set()
        for name, part in module.named_modules():
            self._add_part(name or type(module).__name__, part)
        for kind in _own_classes(module):
            self._of_classes += [(kind, key, value) for key, value in vars(kind).items() if type(value) in _PLAIN]
            forward = vars(kind).get("forward")
            if isinstance(forward, FunctionType):
                self._add_function(forward, _DEEPEST_CALLS)
        self._lengths = list(map(len, self._containers))
        self._addresses = self._where()
        self._trained = [tensor.requires_grad for tensor in self._tensors]

    def changed(self) -> Message | None:
        """What is no longer so."""
        try:
            return self._compared()
        except Exception as error:  # a value that cannot be compared is no longer the one it was
            return message("snapshot.incomparable", error=type(error).__name__)

    def _compared(self) -> Message | None:
        dicts, keys, values = self._plain
        now = list(map(dict.get, dicts, keys))
        if now != values:
            at = next(n for n, (item, other) in enumerate(zip(now, values, strict=True)) if item != other)
            return message("snapshot.changed", name=self._owners["plain"][at], before=values[at], after=now[at])
        for kind, key, value in self._of_classes:
            if getattr(kind, key, self) != value:
                name, after = f"{kind.__name__}.{key}", getattr(kind, key, None)
                return message("snapshot.changed", name=name, before=value, after=after)
        dicts, keys, values = self._same
        if not all(map(is_, map(dict.get, dicts, keys), values)):
            at = next(n for n, key in enumerate(keys) if dicts[n].get(key) is not values[n])
            return message("snapshot.replaced", name=self._owners["same"][at])
        if list(map(len, self._containers)) != self._lengths or any(item != kept for item, kept in self._lists):
            return message("snapshot.parts")
        if self._where() != self._addresses:
            return message("snapshot.moved")
        if [tensor.requires_grad for tensor in self._tensors] != self._trained:
            return message("snapshot.frozen")
        return None

    def _where(self) -> list[int]:
        return [tensor.data_ptr() for tensor in self._tensors]

    def _add_part(self, name: str, part: Any) -> None:
        own = vars(part)
        # A forward that sets an attribute for the first time makes it longer.
        self._containers.append(own)
        self._containers += [own[hooks] for hooks in _OWN_HOOKS if hooks in own]
        for held in _HELD:
            self._containers.append(own[held])
            for key, value in own[held].items():
                self._add(own[held], key, value, f"{name}.{key}")
        for key, value in own.items():
            if key not in self._left_out:
                self._add(own, key, value, f"{name}.{key}", objects=True)

    def _add(self, owner: dict[Any, Any], key: Any, value: Any, words: str, objects: bool = False) -> None:
        is_plain = type(value) in _PLAIN
        group = self._plain if is_plain else self._same
        for held, item in zip(group, (owner, key, value), strict=True):
            held.append(item)
        self._owners["plain" if is_plain else "same"].append(words)
        if isinstance(value, self._torch.Tensor):
            if id(value) not in self._seen:
                self._seen.add(id(value))
                self._tensors.append(value)
        elif objects and not is_plain:
            self._add_object(value, words)

    def _add_object(self, value: Any, words: str) -> None:
        """One level into what a module holds: a list of tensors, a configuration."""
        if id(value) in self._seen or isinstance(value, self._torch.nn.Module | type | FunctionType):
            return
        self._seen.add(id(value))
        if isinstance(value, _CONTAINERS):
            self._containers.append(value)
        entries = value if isinstance(value, dict) else getattr(value, "__dict__", None)
        if isinstance(value, list):
            self._add_list(value)
        elif isinstance(entries, dict) and len(entries) <= _MOST_ENTRIES:
            for key, item in entries.items():
                if type(item) in _PLAIN or isinstance(item, self._torch.Tensor):
                    self._add(entries, key, item, f"{words}.{key}")

    def _add_list(self, values: list[Any]) -> None:
        for value in values[:_MOST_ENTRIES]:
            if isinstance(value, self._torch.Tensor) and id(value) not in self._seen:
                self._seen.add(id(value))
                self._tensors.append(value)
        if len(values) <= _MOST_ENTRIES and all(type(value) in _PLAIN for value in values):
            self._lists.append((values, list(values)))

    def _add_function(self, function: FunctionType, depth: int) -> None:
        """Globals that it reads, and those of the functions it calls by name."""
        if id(function) in self._seen or not depth:
            return
        self._seen.add(id(function))
        for key in function.__code__.co_names:
            value = function.__globals__.get(key, self)
            if isinstance(value, FunctionType) and _is_scripts(value):
                self._add_function(value, depth - 1)
            elif type(value) in _PLAIN or isinstance(value, self._torch.Tensor):
                self._add(function.__globals__, key, value, key)
            elif value is not self and not isinstance(value, type | FunctionType):
                # A list, a namespace of arguments, a module of settings.
                self._add_object(value, key)


def _own_classes(module: Any) -> set[type]:
    """Those of its parts and their bases that are not torch's."""
    kinds = {kind for part in module.modules() for kind in type(part).__mro__}
    return {kind for kind in kinds if kind.__module__.split(".")[0] not in ("torch", "builtins")}


def _is_scripts(function: FunctionType) -> bool:
    return (function.__module__ or "").split(".")[0] != "torch"


class HostRandomness:
    """Where the host's random generators stand: a call that draws from them is not the same call again."""

    def __init__(self, torchs_too: bool) -> None:
        from ...feed import seeding  # it needs torch

        self._seeding = seeding
        self._is_torchs_too = torchs_too
        self._states = seeding.random_states()

    def was_used(self) -> bool:
        of_python, of_torch, *of_numpy = self._states
        python_now, torch_now, *numpy_now = self._seeding.random_states()
        drew = (of_python, of_numpy) != (python_now, numpy_now)
        return drew or (self._is_torchs_too and of_torch != torch_now)

    def restore(self) -> None:
        self._seeding.set_random_states(self._states)


class WatchedCall:
    """Does a call that is made meanwhile do more than compute its result?"""

    def __init__(self, torch: Any, module: Any, torchs_too: bool) -> None:
        """`torchs_too`: torch's own numbers on the host count as well; else a second pass draws the same."""
        self._fixed = ModelSnapshot(torch, module)
        self.host = HostRandomness(torchs_too)

    def found(self) -> Message | None:
        if self.host.was_used():
            return message("call.draws_on_host")
        changed = self._fixed.changed()
        return message("call.leaves_change", changed=changed) if changed is not None else None

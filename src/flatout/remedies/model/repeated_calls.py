"""For calls that are made a second time: the same arguments, precision and random numbers."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import is_
from types import FunctionType
from typing import Any

from ...feed.reasons import Reasoned
from ...records.message import Message, message


def fill_tensors(torch: Any, arguments: Any, tensors: Iterable[Any]) -> Any:
    """`arguments` with these tensors in the place of its own."""
    following = iter(tensors)
    return map_tensors(torch, arguments, lambda _: next(following))


def current_autocast(torch: Any, device_type: str) -> Callable[[], Any]:
    """A context as it is now, without its cache of casts."""
    enabled, dtype = torch.is_autocast_enabled(device_type), torch.get_autocast_dtype(device_type)
    return lambda: torch.autocast(device_type, dtype=dtype, enabled=enabled, cache_enabled=False)


def gradients_of(
    torch: Any, ends: Iterable[tuple[Any, Any]], everything: Sequence[Any], create_graph: bool = False
) -> list[Any]:
    """One for each tensor of `everything`, None where it has none. `ends` are results with what comes back to them."""
    pairs = [(end, seed) for end, seed in ends if seed is not None and end.requires_grad]
    wanted = [tensor for tensor in everything if tensor.requires_grad]
    if not pairs or not wanted:
        return [None] * len(everything)
    results, seeds = zip(*pairs, strict=True)
    found = iter(torch.autograd.grad(results, wanted, seeds, create_graph=create_graph, allow_unused=True))
    return [next(found) if tensor.requires_grad else None for tensor in everything]


class Modes:
    """What of a module is in training and what in evaluation, for a second pass that may come after a change of it."""

    def __init__(self, module: Any) -> None:
        self._then = [(part, part.training) for part in module.modules()]
        self._now: list[bool] = []

    def __enter__(self) -> None:
        self._now = [part.training for part, _ in self._then]
        for part, training in self._then:
            part.training = training

    def __exit__(self, *_: object) -> None:
        for (part, _), training in zip(self._then, self._now, strict=True):
            part.training = training


class GivenTensors:
    """The tensors of a call as they were given, for a second pass that may come after they were written into.

    `keeps` holds copies as well: what a script does to its tensors after the first call, it does after every one.
    """

    def __init__(self, tensors: Iterable[Any], keeps: bool) -> None:
        self._tensors = list(tensors)
        self._versions = [tensor._version for tensor in self._tensors]
        # On the host: where this is for memory, the device's is short.
        self._kept = [tensor.detach().to("cpu", copy=True) for tensor in self._tensors] if keeps else None

    @property
    def is_changed(self) -> bool:
        return [tensor._version for tensor in self._tensors] != self._versions

    @property
    def then(self) -> list[Any] | None:
        """Copies from before the change; None where there are none."""
        if self._kept is None:
            return None
        pairs = zip(self._kept, self._tensors, strict=True)
        return [kept.to(given.device).requires_grad_(given.requires_grad) for kept, given in pairs]


class RandomNumbers:
    """Where torch's generators stand, the host's and that of a device; of the current GPU where none is named."""

    def __init__(self, torch: Any, device: Any = None) -> None:
        self._torch = torch
        self._device = "cuda" if device is None else device
        self._host = torch.get_rng_state()
        has_one = torch.cuda.is_initialized() if device is None else device.type == "cuda"
        self._on_device = torch.cuda.get_rng_state(self._device) if has_one else None

    def restore(self) -> None:
        self._torch.set_rng_state(self._host)
        if self._on_device is not None:
            self._torch.cuda.set_rng_state(self._on_device, self._device)


# Calls of the same form: tensors of equal form at the same places, and equal plain values.

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class NotPlain(Reasoned):
    """Something that may hold tensors where they are not seen; the words name it."""


def tensors_of(torch: Any, value: Any) -> Iterator[Any]:
    """In the order in which `with_tensors` goes. Raises NotPlain for what it would not go into."""
    if isinstance(value, torch.Tensor):
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
            raise NotPlain(message("call.tensor_layout", kind=type(value).__name__, layout=str(value.layout)))
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_of(torch, item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors_of(torch, item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_of(torch, getattr(value, field.name))
    elif not isinstance(value, (*_PLAIN, torch.dtype, torch.device)):
        raise NotPlain(message("call.kind", kind=type(value).__name__))


def form_of(torch: Any, value: Any) -> Any:
    """Equal for two values that one recorded call can stand for."""
    if isinstance(value, torch.Tensor):
        strides = value.stride() if value.layout is torch.strided else None
        return (type(value), value.shape, strides, value.dtype, value.device, value.requires_grad)
    if isinstance(value, dict):
        return (type(value), *((key, form_of(torch, item)) for key, item in value.items()))
    if isinstance(value, tuple | list):
        return (type(value), *(form_of(torch, item) for item in value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return (type(value), *(form_of(torch, getattr(value, name)) for name in names))
    # Others may not be comparable, and are refused once it comes to recording.
    return (type(value), value if isinstance(value, (*_PLAIN, torch.dtype, torch.device)) else id(value))


# Tensors in nested results.


def map_tensors(torch: Any, value: Any, change: Callable[[Any], Any]) -> Any:
    """`value` with every tensor replaced by `change(tensor)`. What needs no change is handed back as it is.

    Goes through tuples, lists, dictionaries and dataclasses of any class; other objects are left alone.
    """
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return _of_dict(torch, value, change)
    if isinstance(value, tuple | list):
        changed = [map_tensors(torch, item, change) for item in value]
        if all(new is old for new, old in zip(changed, value, strict=True)):
            return value
        return type(value)(*changed) if hasattr(value, "_fields") else type(value)(changed)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _of_dataclass(torch, value, change)
    return value


def _of_dict(torch: Any, value: Any, change: Callable[[Any], Any]) -> Any:
    changed = {key: map_tensors(torch, item, change) for key, item in value.items()}
    if all(changed[key] is item for key, item in value.items()):
        return value
    # A class of its own may need arguments, and may keep its entries as attributes too: its own item setter knows.
    result = copy.copy(value)
    for key, item in changed.items():
        result[key] = item
    return result


def _of_dataclass(torch: Any, value: Any, change: Callable[[Any], Any]) -> Any:
    names = [field.name for field in dataclasses.fields(value)]
    changed = {name: map_tensors(torch, getattr(value, name), change) for name in names}
    if all(changed[name] is getattr(value, name) for name in names):
        return value
    result = copy.copy(value)
    for name, item in changed.items():
        object.__setattr__(result, name, item)
    return result


# What a forward pass reads besides its arguments, and whether it is still so.
#
# A recorded call holds addresses and the path that Python took once; one that is made twice has to find the second time
# what it found the first. So all that it may read is kept and compared: plain values on modules, on their configuration
# objects and among globals, which tensors are where, whether they are trained, hooks, and what is switched to
# evaluation.


_COMPARED = (bool, int, float, str, bytes, type(None))
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
            self._of_classes += [(kind, key, value) for key, value in vars(kind).items() if type(value) in _COMPARED]
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
        is_plain = type(value) in _COMPARED
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
                if type(item) in _COMPARED or isinstance(item, self._torch.Tensor):
                    self._add(entries, key, item, f"{words}.{key}")

    def _add_list(self, values: list[Any]) -> None:
        for value in values[:_MOST_ENTRIES]:
            if isinstance(value, self._torch.Tensor) and id(value) not in self._seen:
                self._seen.add(id(value))
                self._tensors.append(value)
        if len(values) <= _MOST_ENTRIES and all(type(value) in _COMPARED for value in values):
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
            elif type(value) in _COMPARED or isinstance(value, self._torch.Tensor):
                self._add(function.__globals__, key, value, key)
            elif value is not self and not isinstance(value, type | FunctionType):
                # A list, a namespace of arguments, a module of settings.
                self._add_object(value, key)


def _own_classes(module: Any) -> set[type]:
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

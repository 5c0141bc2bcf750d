"""Which modules one sampled step calls, and which of these calls it could do without.

A call is a repeat if the same module was called with the same input before, and its weights have not changed since. The
same input is the same tensor object, unchanged, or the result of such a repeat. A call computes gradients that nobody
uses if no optimizer has any of the module's weights. No tensor is kept: only ids, versions and weak references.
"""

from __future__ import annotations

import ctypes
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from .link_growing import GrowingInputs, Series

# A line of the user's code: the id of the code it is in (which the trace keeps), its number, and whether a module was
# being called.
Key = tuple[int, int, bool]
NOWHERE: Key = (0, 0, False)  # nodes that were made before the sample began, or in another thread

# Weights, by id: weak references.
Held = dict[int, Any]

REPEAT, UNHELD = "repeat", "unheld"

_MOST_CALLS = 4000  # that are remembered in a step
_MOST_FOUND = 100
_MOST_LEAVES = 64  # of the input and of the result of a call
_WEIGHTS = 4  # whose version stands for that of all
_MORE = 1.2  # times what the calls within it take, a call tells more than they do
_DEEP = 1  # calls within this many others are compared by their settings where results cannot be read
_BYTES = 512  # that are read at the beginning, in the middle and at the end of a result


@dataclass(slots=True, eq=False)
class Call:
    """One that the step could do without, at least in part."""

    key: Key
    module: str
    has_grad: bool  # is a graph made?
    kind: str = ""
    first: int = 0  # number of the first node it made
    last: int = 0
    nodes: int = 0  # that backward ran
    passes: int = 0  # in how many
    forward_s: float = 0.0
    backward_s: float = 0.0
    # When it began and ended, and what the device does for it; None: not recorded.
    moments: list[float] = field(default_factory=list)
    forward_device_s: float | None = None
    backward_device_s: float | None = None
    first_call: Call | None = None  # of a repeat: what it repeats
    is_random: bool = False  # another result than the first time, by random numbers
    moves_state: bool = False  # buffers of the module change: running statistics
    flows_through: bool = False  # gradients go on to what came before
    weight: Weight | None = None

    @property
    def seconds(self) -> float:
        """What is known of it so far: all of it in forward, and gradients that were asked for within it."""
        return self.forward_s + self.backward_s


class Weight:
    """One weight of a module, to see whether anybody trains it. Without a reference to it."""

    __slots__ = ("_gradient", "_state", "_weight", "number")

    def __init__(self, weight: Any) -> None:
        self.number = id(weight)
        self._weight = weakref.ref(weight)
        self._state = version_of(weight), bytes_of(weight)
        gradient = weight.grad
        self._gradient = None if gradient is None else (weakref.ref(gradient), version_of(gradient))

    def is_unused(self, held: Held, passes: int, before: Weight | None) -> bool:
        """Does surely nobody use its gradient, to which so many passes have added in this step?

        What nobody clears only grows. What is cleared may be used by whoever trains the weight by hand, or in a copy:
        then it is another one than in an earlier window.
        """
        weight = self._weight()
        if weight is None or is_in(held, weight):
            return False  # made for this step, or by an optimizer that is new
        gradient, version = self._gradient if self._gradient is not None else (nothing, None)
        if gradient() is not None and gradient() is weight.grad and version_of(weight.grad) == (version or 0) + passes:
            return True
        return before is not None and before._weight() is weight and before._state == self._state

    def is_unchanged(self, held: Held) -> bool:
        """Is it as it was, some steps later? Then nobody trains it."""
        weight = self._weight()
        return weight is not None and not is_in(held, weight) and self._state == (version_of(weight), bytes_of(weight))


def is_in(held: Held, weight: Any) -> bool:
    reference = held.get(id(weight))
    return reference is not None and reference() is weight


def nothing() -> None:
    return None


@dataclass(slots=True)
class _Known:
    """A call that a later one may repeat."""

    call: Call
    digest: object
    tokens: list[object]  # of its results
    settings: object = None  # where there is no digest


@dataclass(slots=True)
class _Open:
    call: Call
    module: Any
    signature: object = None  # None: it is not compared with others
    has_input: bool = False
    known: _Known | None = None  # what it may repeat
    series: Series | None = None  # its own, or that of the call around it
    before: tuple[object, object, object] | None = None


class ModuleCalls:
    """Those of one step. `held` gives the weights that some optimizer has.

    `weights` are those without one, as they were in earlier windows.
    """

    def __init__(self, torch: Any, held: Callable[[], Held], weights: dict[int, Weight]) -> None:
        self._tensor = torch.Tensor
        self._torch = torch
        self._without_overrides = torch._C.DisableTorchFunction
        self._sequence: Callable[[], int] = torch._C._autograd._get_sequence_nr
        self._ask_held, self.held = held, held()
        self.weights = weights
        self._open: list[_Open | None] = []
        self._quiet = 0  # depth within a call whose inner ones are not looked at
        self._known: dict[object, _Known] = {}
        self._tokens: dict[int, tuple[Any, int, object]] = {}
        self._is_held: dict[int, bool] = {}
        self.growing = GrowingInputs(self._tensor)
        self.found: list[Call] = []
        # Of the found ones that made nodes: where their numbers begin.
        self._starts: list[int] = []
        self._ranges: list[Call] = []
        # Those that have ended and made nodes, an inner one before the one around it.
        self.spans: list[Call] = []

    def enter(self, local: Mapping[str, Any], key: Key) -> Call | None:
        """A module is called with these local variables, in this line. Returns the call, if it is looked at."""
        module: Any = local.get("self")
        parts = getattr(module, "__dict__", {})
        has_parts = parts.get("_modules") or parts.get("_parameters")
        if self._quiet or not has_parts:
            self._open.append(None)
            self._quiet += 1 if self._quiet else 0
            return None
        with self._without_overrides():
            grad = bool(self._torch.is_grad_enabled())
            call = Call(key, type(module).__name__, grad)
            opened = _Open(call, module)
            within = self._open[-1].series if self._open and self._open[-1] is not None else None
            series = self.growing.meet(call, module, local, within)
            opened.series = series or within
            if len(self._known) <= _MOST_CALLS:
                self._compare(opened, local)
        self._open.append(opened)
        if call.kind or (series is not None and series.is_sure):
            self._quiet = 1  # of a long sequence the inner calls would use up what looking may cost
        call.first = self._sequence()
        return call

    def leave(self, result: Any) -> Call | None:
        """The innermost call ends; returns it, if it is looked at."""
        if not self._open:
            return None  # it began before the sample did
        opened = self._open.pop()
        self._quiet = max(0, self._quiet - 1)
        if opened is None:
            return None
        call = opened.call
        call.last = self._sequence()
        if call.last > call.first:
            self.spans.append(call)
        if opened.signature is None:
            return call
        with self._without_overrides():
            results = list(islice(leaves_of(result), _MOST_LEAVES))
            if call.kind != REPEAT:
                self._remember(opened, results)
            elif not self._confirm(opened, results):
                call.kind = ""
        if call.kind == UNHELD and call.last > call.first:
            self._find(call)
        return call

    def forget_open(self) -> None:
        """What is under way is lost sight of."""
        self._open.clear()
        self._quiet = 0
        self.growing.close()

    def forget_known(self) -> None:
        """What follows repeats none of the calls so far."""
        self._known.clear()

    @property
    def is_quiet(self) -> bool:
        """Is a call under way whose inner ones are not looked at?"""
        return self._quiet > 0

    def add(self, call: Call) -> None:
        """Another one that the step could do without. Of calls within one another, the one that tells more stays."""
        inner = [found for found in self.found if call.first <= found.first < call.last]
        theirs_s = sum(found.forward_s for found in inner)
        if inner and (call.seconds < _MORE * theirs_s or any(found.kind != REPEAT for found in inner)):
            return
        for found in inner:
            self.found.remove(found)
            if found in self._ranges:
                place = self._ranges.index(found)
                del self._starts[place], self._ranges[place]
        self._find(call)

    @property
    def has_ranges(self) -> bool:
        return bool(self._starts)

    def at(self, number: int) -> Call | None:
        """The found call that made the node of this number."""
        place = bisect_right(self._starts, number) - 1
        found = self._ranges[place] if place >= 0 else None
        return found if found is not None and number < found.last else None

    def finish(self) -> list[Call]:
        """Those that the step could do without, now that it has ended."""
        self.held = self._ask_held()
        return [call for call in self.found if self._judge_needless(call)]

    def find_unchanged(self, calls: Iterable[Call]) -> list[Call]:
        """Some steps later, of those that could not be judged: with weights that nobody trains."""
        self.held = self._ask_held()
        return [call for call in calls if call.weight is not None and call.weight.is_unchanged(self.held)]

    # What a call is.

    def _compare(self, opened: _Open, local: Mapping[str, Any]) -> None:
        """May the step do without it?"""
        call, module = opened.call, opened.module
        leaves = list(islice(leaves_of((local.get("args", ()), local.get("kwargs", {}))), _MOST_LEAVES + 1))
        opened.signature, opened.has_input = self._signature(module, leaves), bool(leaves)
        opened.known = self._known.get(opened.signature)
        if opened.known is not None:
            call.kind = REPEAT
            opened.before = self._state_of(module, leaves)
        elif call.has_grad and not self._has_held(module):
            call.kind = UNHELD
            call.flows_through = any(isinstance(leaf, self._tensor) and leaf.requires_grad for leaf in leaves)
            call.weight = next((Weight(weight) for weight in module.parameters() if weight.requires_grad), None)

    def _signature(self, module: Any, leaves: list[Any]) -> object:
        """Two calls of the same signature compute the same."""
        weights = tuple(version_of(weight) for weight in islice(weights_of(module), _WEIGHTS))
        return id(module), module.training, _autocast(self._torch), weights, tuple(self.token(leaf) for leaf in leaves)

    def token(self, leaf: Any) -> object:
        """Equal for what has the same value, surely."""
        if leaf is None or isinstance(leaf, bool | int | float | str):
            return type(leaf), leaf
        if not isinstance(leaf, self._tensor):
            return object()  # nobody knows whether it has changed since
        version = version_of(leaf)
        known = self._tokens.get(id(leaf))
        if known is not None and known[0]() is leaf and known[1] == version and version is not None:
            return known[2]
        return self._note(leaf, object())

    def _note(self, leaf: Any, token: object) -> object:
        version = version_of(leaf)
        if version is not None:
            self._tokens[id(leaf)] = weakref.ref(leaf), version, token
        return token

    def _remember(self, opened: _Open, results: list[Any]) -> None:
        known = _Known(opened.call, digest_of(results, self._tensor), [self.token(leaf) for leaf in results])
        if known.digest is None and len(self._open) <= _DEEP:
            known.settings = _settings_of(opened.module)
        self._known[opened.signature] = known

    def _confirm(self, opened: _Open, results: list[Any]) -> bool:
        """Does the repeat give what the first call gave? Where that cannot be read, nothing in between may differ."""
        call, known = opened.call, opened.known
        assert known is not None and opened.before is not None
        digest = digest_of(results, self._tensor)
        random, buffers, attributes = self._state_of(opened.module, results)
        if buffers != opened.before[1] and not opened.has_input:
            return False  # it is made of its own state, which goes on with each call (a power iteration)
        is_random = random != opened.before[0]
        is_same = digest == known.digest if digest is not None and known.digest is not None else not is_random
        if not is_same and not is_random:
            return False
        is_read = digest is not None and known.digest is not None
        if not is_read and (attributes != opened.before[2] or known.settings != _settings_of(opened.module)):
            return False  # the module keeps something from call to call, or was switched over (an adapter is off)
        call.is_random = not is_same
        call.moves_state = buffers != opened.before[1]
        call.first_call = known.call
        if is_same:
            for leaf, token in zip(results, known.tokens, strict=False):
                if isinstance(leaf, self._tensor):
                    self._note(leaf, token)
        if call.has_grad and not known.call.has_grad:
            # Of the two, the one with a graph has to stay: its result serves for both.
            call.first_call = None
            earlier, known.call = known.call, call
            if not earlier.kind:
                earlier.kind, earlier.first_call = REPEAT, call
                earlier.is_random, earlier.moves_state = call.is_random, call.moves_state
                self._find(earlier)
            call.kind = ""
            return True
        self._find(call)
        return True

    def _find(self, call: Call) -> None:
        if len(self.found) < _MOST_FOUND:
            self.found.append(call)
            self._watch_nodes(call)
            if call.is_random and call.first_call is not None:
                self._watch_nodes(call.first_call)

    def _watch_nodes(self, call: Call) -> None:
        if call.last > call.first and call not in self._ranges:
            place = bisect_right(self._starts, call.first)
            self._starts.insert(place, call.first)
            self._ranges.insert(place, call)

    def _state_of(self, module: Any, leaves: list[Any]) -> tuple[object, object, object]:
        """Of the random numbers, of the module's buffers, and of what else it may keep from call to call."""
        buffers = tuple(version_of(buffer) for buffer in module.buffers())
        attributes = tuple(
            (id(value), version_of(value) if isinstance(value, self._tensor) else _size(value))
            for part in module.modules()
            for name, value in part.__dict__.items()
            if not name.startswith("_")
        )
        return self._random_state(leaves), buffers, attributes

    def _random_state(self, leaves: list[Any]) -> object:
        states = [_read(self._torch.default_generator.get_state())]
        devices = {leaf.device.index for leaf in leaves if isinstance(leaf, self._tensor) and leaf.is_cuda}
        for device in sorted(index for index in devices if index is not None):
            states.append(_read(self._torch.cuda.default_generators[device].get_state()))
        return tuple(states)

    # Weights that no optimizer has.

    def _has_held(self, module: Any) -> bool:
        """Has an optimizer one of its weights? True also where it has none that could be trained."""
        known = self._is_held.get(id(module))
        if known is None:
            is_held = any(is_in(self.held, weight) for weight in weights_of(module))
            known = is_held or not self.held or not any(weight.requires_grad for weight in weights_of(module))
            self._is_held[id(module)] = known
        return known

    def _judge_needless(self, call: Call) -> bool:
        if call.kind == UNHELD:
            weight = call.weight
            if weight is None:
                return False
            before = self.weights.setdefault(weight.number, weight)
            return weight.is_unused(self.held, call.passes, None if before is weight else before)
        first = call.first_call
        # Two passes with different random numbers, both trained on, are a method (R-Drop, SimCSE).
        return first is not None and (not call.is_random or (first.nodes > 0 and call.nodes == 0))


def leaves_of(value: Any, depth: int = 4) -> Iterator[Any]:
    """What lies in nested tuples, lists and dicts; what is nested deeper is handed out as it is."""
    if depth and isinstance(value, tuple | list):
        for part in value:
            yield from leaves_of(part, depth - 1)
    elif depth and isinstance(value, Mapping):
        for name, part in value.items():
            yield name if isinstance(name, str) else None
            yield from leaves_of(part, depth - 1)
    else:
        yield value


def weights_of(module: Any) -> Iterator[Any]:
    """As `parameters()`, which costs several times as much; one that is shared comes more than once."""
    for weight in module._parameters.values():
        if weight is not None:
            yield weight
    for part in module._modules.values():
        if part is not None:
            yield from weights_of(part)


def version_of(tensor: Any) -> int | None:
    try:
        return int(tensor._version)
    except (RuntimeError, AttributeError):
        return None  # made in inference mode


def _autocast(torch: Any) -> object:
    ask = getattr(torch._C, "_is_any_autocast_enabled", None)
    return ask() if ask is not None else torch.is_autocast_enabled()


def _settings_of(module: Any) -> object:
    """Flags, numbers and names that its parts have."""
    kinds = (bool, int, float, str)
    found = [value for part in module.modules() for value in part.__dict__.values() if type(value) in kinds]
    lists = [value for part in module.modules() for value in part.__dict__.values() if type(value) in (list, tuple)]
    named = [name for value in lists for name in value[:4] if type(name) is str]
    return hash((*found, *named))


def _size(value: Any) -> int | None:
    return len(value) if isinstance(value, list | dict | set) else None


def digest_of(leaves: list[Any], tensor: Any) -> object:
    """Of the values of these, as far as they lie in host memory; None where nothing can be read."""
    seen = []
    for leaf in leaves:
        if isinstance(leaf, tensor):
            part = bytes_of(leaf)
            if part is None:
                return None
            seen.append((tuple(leaf.shape), part))
    return hash(tuple(seen)) if seen else None


def bytes_of(leaf: Any) -> bytes | None:
    try:
        if not leaf.is_cpu or not (leaf.is_contiguous() or _is_dense(leaf)):
            return None
        size, start = leaf.numel() * leaf.element_size(), leaf.data_ptr()
    except (RuntimeError, NotImplementedError, AttributeError):
        return None
    if not size:
        return b""
    if not start:
        return None  # a wrapper around tensors that lie elsewhere
    if size <= 3 * _BYTES:
        return ctypes.string_at(start, size)
    places = (0, (size // 2) & ~7, size - _BYTES)
    return b"".join(ctypes.string_at(start + place, _BYTES) for place in places)


def _is_dense(leaf: Any) -> bool:
    """Do its values lie one beside the other, in whatever order?"""
    reach = sum((length - 1) * stride for length, stride in zip(leaf.shape, leaf.stride(), strict=True))
    return bool(reach + 1 == leaf.numel())


def _read(state: Any) -> bytes:
    return ctypes.string_at(state.data_ptr(), state.numel() * state.element_size())

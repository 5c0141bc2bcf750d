"""Stands for one function of the user's: computes what is new, and gives back copies of what came before.

A hit is certain: all that the result hangs on is equal bit by bit. All the same the first hits, and now and then a
later one, are computed again and compared; the generators of random numbers must not move while it computes; and it
must not change its arguments. Whatever breaks a rule ends the keeping, and what was computed is what counts.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from ...feed.machine import free_bytes, ranks_here
from ...records.message import Message, message
from ..site import Site
from .call_key import CallKey, KeyMaker
from .content import (
    Unkeepable,
    Unkeyable,
    bits,
    bytes_on,
    check_keepable,
    copy_of,
    generator_states,
    is_same,
    map_parts,
    moved_generator,
    same_bits,
)
from .purity import Impure

_COMPARED_AT_FIRST = 3
# Later hits are compared when there were so many times more of them, and it takes no more than this part of the time.
_TIMES_MORE, _SHARE_COMPARED = 4, 0.01
_CALLS_TO_JUDGE = 20
# Of the function's own time: what looking its arguments up may take before there is a hit.
_DEAREST = 0.2
_NOTHING: Any = object()


class Kept(NamedTuple):
    """What a call gave, the large ones of its arguments, and what it took to compute."""

    result: Any
    large: tuple[Any, ...]
    took_s: float


@dataclass(frozen=True, slots=True)
class _Call:
    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def compute(self) -> Any:
        return self.function(*self.args, **self.kwargs)


class KeptCalls:
    """Of `name`, a "function" or a "Class.method". `stop(calls, why, is_refusal)` is told once, when it is over."""

    def __init__(
        self,
        site: Site,
        name: str,
        room: MemoryRoom,
        stop: Callable[[KeptCalls, Message, bool], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._site, self._torch = site, site.torch
        self.name = name
        self._is_method = "." in name.partition(":")[2]
        self._room = room
        self._stop = stop
        self._carried = CarriedResults(site.torch, os.environ.get(CARRIED_VARIABLE), name)
        self._clock = clock
        self._asking: dict[type | None, KeyMaker] = {}
        self._kept: dict[Hashable, Kept] = {}
        # The process and the thread that it is kept in: those of the first call.
        self._home: tuple[int, int] | None = None
        self._is_inside = self._is_over = self.is_full = False
        # Calls that were neither, as they could not be looked up.
        self.hits = self.misses = self.skipped = 0
        self.saved_s = self.own_s = self._function_s = 0.0
        self._compared = self._compared_at = 0
        self._compared_s = self._steady_s = 0.0
        self.steady_from_step: int | None = None

    @property
    def calls(self) -> int:
        return self.hits + self.misses

    def make(self, original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._claim():
                return original(*args, **kwargs)
            began_s, known = self._clock(), len(self._asking)
            this = _Call(original, args, kwargs)
            asked = self._site.guarded(lambda: self._asked(this))
            if asked is None:
                self.skipped += 1
                return this.compute()
            kept = self._site.guarded(lambda: self._found(asked))
            if kept is not None and not self._is_due(kept):
                copied = self._site.guarded(lambda: copy_of(self._torch, kept.result), lambda: _NOTHING)
                if copied is not _NOTHING:
                    self._given(kept, self._clock() - began_s)
                    return copied
            if known == len(self._asking):  # its source is read once
                self.own_s += self._clock() - began_s
            return self._computed(this, asked, kept)

        return call

    def forget(self) -> None:
        self._kept.clear()
        self._is_over = True

    def end(self, why: Message, is_refusal: bool = False) -> None:
        if not self._is_over:
            self.forget()
            self._stop(self, why, is_refusal)

    def _claim(self) -> bool:
        """Not in loaders' workers, which have a cache of their own to use, nor in a second thread or a forked child."""
        if self._is_over or self._is_inside or not self._site.in_force:
            return False
        here = (os.getpid(), threading.get_ident())
        if self._home is None:
            if self._torch.utils.data.get_worker_info() is not None:
                return False
            self._home = here
            self._site.guarded(self._load)
        return self._home == here

    def _load(self) -> None:
        """What another trial has kept counts as kept here."""
        for key, kept in self._carried.load().items():
            if not self._room.take(bytes_on(self._torch, [kept.result, list(kept.large)])):
                return
            self._kept[key] = kept

    def carry(self) -> bool:
        """Whether the next trial will find what is kept here."""
        return self._carried.save(self._kept, self._room.taken_bytes)

    def _asked(self, call: _Call) -> CallKey | None:
        owner = type(call.args[0]) if self._is_method and call.args else None
        try:
            if owner not in self._asking:
                self._asking[owner] = KeyMaker(self._torch, call.function, owner)
            return self._asking[owner].asked(call.args, call.kwargs)
        except (Impure, Unkeyable) as reason:
            self.end(reason.why, is_refusal=self.hits == 0)
            return None

    def _found(self, asked: CallKey) -> Kept | None:
        kept = self._kept.get(asked.key)
        if kept is None or not all(map(partial(same_bits, self._torch), kept.large, asked.large)):
            return None
        return kept

    def _is_due(self, kept: Kept) -> bool:
        """Whether this hit is to be compared with what the function gives."""
        if self._compared < _COMPARED_AT_FIRST:
            return True
        if self.hits < _TIMES_MORE * self._compared_at:
            return False
        return self._compared_s + kept.took_s < _SHARE_COMPARED * (self._clock() - self._steady_s)

    def _given(self, kept: Kept, own_s: float) -> None:
        self.hits += 1
        self.own_s += own_s
        self.saved_s += kept.took_s
        if self.hits % _CALLS_TO_JUDGE == 0 and self.saved_s < self.own_s:
            self.end(message("memo.costs_more", own_s=self.own_s, saved_s=self.saved_s))

    def _computed(self, call: _Call, asked: CallKey, kept: Kept | None) -> Any:
        before = self._site.guarded(lambda: generator_states(self._torch))
        began_s = self._clock()
        self._is_inside = True
        try:
            result = call.compute()
        finally:
            self._is_inside = False
        ended_s = self._clock()
        took_s = ended_s - began_s

        def after() -> None:
            self._function_s += took_s
            why = self._impurity(call, asked, kept, before)
            if why is not None:
                self.end(why, is_refusal=self._compared == 0)
            elif kept is not None:
                self._compare(kept, result, took_s)
            else:
                self.misses += 1
                self._keep(asked, result, took_s)
                self._judge_cost()

        if before is not None:
            self._site.guarded(after)
        self.own_s += self._clock() - ended_s
        return result

    def _impurity(self, call: _Call, asked: CallKey, kept: Kept | None, before: Any) -> Message | None:
        """What it has done besides computing, by the generators' states before and by its arguments."""
        drawn = moved_generator(self._torch, before)
        if drawn is not None:
            return message("memo.draws", whose=drawn)
        again = self._asked(call) if kept is not None or self.misses < _COMPARED_AT_FIRST else None
        return message("memo.changes_arguments") if again is not None and again.key != asked.key else None

    def _compare(self, kept: Kept, result: Any, took_s: float) -> None:
        self.hits += 1
        if not is_same(self._torch, kept.result, result):
            self.end(message("memo.other_result"))
            return
        self._compared += 1
        self._compared_at = self.hits
        if self._compared == _COMPARED_AT_FIRST:
            self._steady_s = self._clock()
            self.steady_from_step = self._site.step + 2  # this call is part of the step that is under way
        elif self._compared > _COMPARED_AT_FIRST:
            self._compared_s += took_s

    def _keep(self, asked: CallKey, result: Any, took_s: float) -> None:
        torch = self._torch
        try:
            check_keepable(torch, result, asked.values)
        except Unkeepable as reason:
            self.end(reason.why, is_refusal=True)
            return
        wanted = bytes_on(torch, [result, list(asked.large)])
        wanted["cpu"] = wanted.get("cpu", 0) + asked.key_bytes
        if asked.key in self._kept:
            return  # large arguments with the same sums that are not the same
        self.is_full = not self._room.take(wanted)
        if not self.is_full:
            large = tuple(item.clone() for item in asked.large)
            self._kept[asked.key] = Kept(copy_of(torch, result), large, took_s)

    def _judge_cost(self) -> None:
        if self.hits == 0 and self.misses % _CALLS_TO_JUDGE == 0 and self.own_s > _DEAREST * self._function_s:
            each_ms, its_ms = (1e3 * own_ / self.misses for own_ in (self.own_s, self._function_s))
            self.end(message("memo.lookup_slow", lookup_ms=each_ms, function_ms=its_ms))
        elif self.hits == 0 and self.is_full and self.misses > 3 * len(self._kept):
            self.end(message("memo.full"))


# How much more may be kept: a tenth of the free memory, of a device and of the host, asked anew each time.

_SHARE = 0.1


class MemoryRoom:
    """What is kept where, in bytes."""

    def __init__(self, free_bytes: Callable[[str], int | None]) -> None:
        self._free_bytes = free_bytes
        self._taken: dict[str, int] = {}

    @property
    def taken_bytes(self) -> int:
        return sum(self._taken.values())

    def take(self, wanted: Mapping[str, int]) -> bool:
        """Whether there is room for it; then it counts as taken."""
        for kind, size in wanted.items():
            free, taken = self._free_bytes(kind), self._taken.get(kind, 0)
            if free is None or taken + size > _SHARE * (free + taken):
                return False
        for kind, size in wanted.items():
            self._taken[kind] = self._taken.get(kind, 0) + size
        return True


def memory_left(torch: Any, kind: str) -> int | None:
    """Of the host, a part for each of the processes that train on it; None where it is not known."""
    if kind == "cuda":
        free, _ = torch.cuda.mem_get_info()
        return int(free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated())
    if kind != "cpu":
        return None
    known = free_bytes()
    return known // ranks_here() if known is not None else None


# Results kept by one trial of a search, for the next: it need not run an epoch to have them. They are found by the
# same rules as any other, equal bit by bit in all inputs, and compared at first.

CARRIED_VARIABLE = "FLATOUT_CARRIED"
# More would take longer to write than it saves.
_MOST_BYTES = 2 << 30


class CarriedResults:
    """The file of one function in the folder that trials share; without a folder there is nothing to carry."""

    def __init__(self, torch: Any, folder: str | None, name: str) -> None:
        self._torch = torch
        own = f"{hashlib.blake2b(name.encode(), digest_size=8).hexdigest()}.kept"
        self._file = os.path.join(folder, own) if folder else None

    def load(self) -> dict[Hashable, Kept]:
        """By key."""
        if self._file is None or not os.path.exists(self._file):
            return {}
        try:
            with open(self._file, "rb") as file:
                packed = pickle.load(file)
            return {
                key: Kept(map_parts(self._torch, result, self._unpacked), tuple(map(self._unpacked, large)), took_s)
                for key, (result, large, took_s) in packed.items()
            }
        except Exception:
            return {}  # then they are computed, as ever

    def save(self, kept: Mapping[Hashable, Kept], total_bytes: int) -> bool:
        """Whether the next trial will find them. Those of the first that has any are enough."""
        if self._file is None or not kept or total_bytes > _MOST_BYTES:
            return False
        try:
            if not os.path.exists(self._file):
                self._write(self._file, kept)
            return True
        except Exception:
            return False  # a class that cannot be pickled, a disk that is full: the next one computes them

    def _write(self, file: str, kept: Mapping[Hashable, Kept]) -> None:
        packed = {
            key: (map_parts(self._torch, result, self._packed), tuple(map(self._packed, large)), took_s)
            for key, (result, large, took_s) in kept.items()
        }
        os.makedirs(os.path.dirname(file), exist_ok=True)
        partial = f"{file}.{os.getpid()}"
        with open(partial, "wb") as opened:
            pickle.dump(packed, opened, pickle.HIGHEST_PROTOCOL)
        os.replace(partial, file)

    def _packed(self, tensor: Any) -> Any:
        if not isinstance(tensor, self._torch.Tensor):
            return tensor
        data = bits(self._torch, tensor).cpu().numpy().tobytes()
        return _Packed(tensor.dtype, tuple(tensor.shape), tensor.stride(), str(tensor.device), data)

    def _unpacked(self, packed: Any) -> Any:
        torch = self._torch
        if not isinstance(packed, _Packed):
            return packed
        made = torch.empty_strided(packed.shape, packed.stride, dtype=packed.dtype, device=packed.device)
        if packed.data:
            flat = torch.frombuffer(bytearray(packed.data), dtype=torch.uint8)
            made.copy_(flat.view(packed.dtype).reshape(packed.shape))
        return made


@dataclass(frozen=True, slots=True)
class _Packed:
    """A tensor as plain bytes: how torch writes one is watched, and is the script's."""

    dtype: Any
    shape: Any
    stride: Any
    device: str
    data: bytes

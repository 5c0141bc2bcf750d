"""Results of a function that you name are kept, and given back when the same arguments come again.

`memo.function = "slider.engine:Engine.make_targets"` keeps what the method `make_targets` returns, `"__main__:targets"`
a function of the script itself; several with a comma, or as a list. In the second epoch the same samples come again,
and what was computed from them in the first is copied instead.

Lossless, because only a function that computes and does nothing else is taken, and only what is equal bit by bit counts
as the same. Its source is read, with all functions of yours that it calls: it may write into what it has made itself,
and call what is known to be pure; it draws no random numbers, sets no attribute, prints nothing. Arguments, attributes
of `self`, globals and torch's settings that it reads are compared with all their bits. The first results that are given
back are computed again and compared, and a later one now and then. Every caller gets a copy of its own.

Refuses, with the reason, where any of this does not hold, and where gradients flow through the function. Keeps a tenth
of the free memory, of the device and of the host, and throws nothing out. Is undone when no arguments come again in two
epochs, when looking them up costs more than it saves, and when a result turns out to be another than before.
"""

from __future__ import annotations

import atexit
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...records.message import Message, message
from ..answers import Answer, Report
from ..site import Site, join_reasons
from ..traits import Bottleneck, Evidence, Traits
from ..values import Value

ID = "memo.function"
TITLE = "A function's results are kept for when the same arguments come again"
SAFETY = "lossless"
TRAITS = Traits(
    Bottleneck.HOST,
    begins_with_second_epoch=True,
    evidence=Evidence("hits_from_step", message("experiment.nothing_came_again")),
)
_ONE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
# Steps until a module that the function is to be in has been imported.
_THERE_BY_STEP = 3


@dataclass(frozen=True, slots=True)
class _FunctionNames(Value):
    """`module:function`, several with commas or as a list."""

    @property
    def words(self) -> str:
        return '"module:function" or "module:Class.method"; several with commas'

    def read(self, written: object) -> str:
        parts = written if isinstance(written, list | tuple) else str(written).split(",")
        names = [str(part).strip() for part in parts]
        if not names or not all(_ONE.fullmatch(name) for name in names):
            raise self._refusal(written)
        return ",".join(dict.fromkeys(names))


VALUE = _FunctionNames()


def applies(report: Report) -> Answer:
    from .proposal import propose_functions

    return propose_functions(report, ID)


def apply(site: Site, value: Any) -> None:
    _Functions(site, str(value).split(","))


class _Functions:
    """All that the profile names, in one process."""

    def __init__(self, site: Site, names: list[str]) -> None:
        from .kept_calls import MemoryRoom, memory_left

        self._site = site
        self._room = MemoryRoom(partial(memory_left, site.torch))
        self._missing = list(names)
        self._calls: list[Any] = []
        self._stopped: list[Message] = []
        self._told_at = 0
        self._counts_epochs = False
        self._epochs = Epochs(site, self._look_in_script)
        for name in names:
            module = name.partition(":")[0]
            if module != "__main__":
                site.after_import(module, partial(self._take, name))
        site.each_step(self._after_step)
        atexit.register(self._tell)
        site.undo(lambda: atexit.unregister(self._tell))
        site.undo(self._forget)
        site.at_leave(self._carry)

    def _look_in_script(self) -> None:
        """Its functions come into being while it runs: they are there when its data is gone through."""
        for name in [name for name in self._missing if name.startswith("__main__:")]:
            if self._site.in_force and _owner(sys.modules["__main__"], name.partition(":")[2]) is not None:
                self._take(name, sys.modules["__main__"])

    def _take(self, name: str, module: Any) -> None:
        from .kept_calls import KeptCalls

        written = name.partition(":")[2]
        last = written.rpartition(".")[2]
        owner = _owner(module, written)
        self._missing.remove(name)
        if owner is None:
            self._stop(name, message("remedy.no_function", module=module.__name__, function=written), is_refusal=True)
        elif isinstance(vars(owner).get(last), staticmethod | classmethod | property):
            self._stop(name, message("memo.no_plain_function", function=written), is_refusal=True)
        else:
            calls = KeptCalls(self._site, name, self._room, partial(self._stop_calls, name))
            self._calls.append(calls)
            self._site.replace(owner, last, calls.make)
            self._site.tell(functions=", ".join(call.name for call in self._calls))

    def _after_step(self, step: int) -> None:
        if step == 1:
            self._look_in_script()
        if step == _THERE_BY_STEP:
            for name in list(self._missing):
                self._missing.remove(name)
                self._stop(name, message("memo.not_imported", module=name.partition(":")[0]), is_refusal=True)
            for calls in list(self._calls):
                if not calls.calls:
                    calls.end(
                        message("memo.not_seen" if calls.skipped else "memo.not_called", steps=step), is_refusal=True
                    )
        self._watch_epochs()
        if sum(calls.calls for calls in self._calls) >= max(8, 2 * self._told_at) or self._has_news():
            self._tell()

    def _carry(self) -> None:
        if self._calls and not [calls for calls in self._calls if not calls.carry()]:
            self._site.tell(carried=True)

    def _watch_epochs(self) -> None:
        if not self._counts_epochs and any(calls.calls for calls in self._calls):
            self._counts_epochs = True
            self._epochs.forget()
        if self._epochs.begun >= 2:
            for calls in list(self._calls):
                if not calls.hits:
                    calls.end(message("memo.never_again", batches=self._epochs.longest))

    def _has_news(self) -> bool:
        steady = [calls.steady_from_step for calls in self._calls]
        return None not in steady and "hits_from_step" not in self._site.live

    def _tell(self) -> None:
        """From `hits_from_step` on, all of them give back what they have kept."""
        calls = self._calls
        steady = [call.steady_from_step for call in calls if call.steady_from_step is not None]
        self._told_at = sum(call.calls for call in calls)
        live: dict[str, object] = {
            "hits": sum(call.hits for call in calls),
            "misses": sum(call.misses for call in calls),
            "kept_bytes": self._room.taken_bytes,
            "saved_s": round(sum(call.saved_s for call in calls), 3),
            "own_s": round(sum(call.own_s for call in calls), 3),
        }
        if steady and len(steady) == len(calls):
            live["hits_from_step"] = max(steady)
        if any(call.is_full for call in calls):
            live["full"] = True
        self._site.tell(**live)

    def _stop_calls(self, name: str, calls: Any, why: Message, is_refusal: bool) -> None:
        self._calls.remove(calls)
        self._stop(name, why, is_refusal)

    def _stop(self, name: str, why: Message, is_refusal: bool) -> None:
        """One is over; with the last of them the remedy is."""
        self._stopped.append(message("memo.stopped", function=name.partition(":")[2], why=why))
        if self._calls or self._missing:
            self._site.tell(left=join_reasons(self._stopped))
        elif is_refusal:
            self._site.refuse(join_reasons(self._stopped))
        else:
            self._site.give_up(join_reasons(self._stopped))

    def _forget(self) -> None:
        for calls in list(self._calls):
            calls.forget()


def _owner(module: Any, name: str) -> Any:
    """The class or module that has a function of this name; None where there is none."""
    *classes, last = name.split(".")
    owner = module
    for item in classes:
        owner = vars(owner).get(item) if owner is not None else None
        if not isinstance(owner, type):
            return None
    found = getattr(owner, last, None) if owner is not None else None
    return owner if callable(found) and not isinstance(found, type) else None


# How many epochs have begun: the longest loader begins anew with each.


class Epochs:
    """Begins of loaders, by their length, since it was asked to count."""

    def __init__(self, site: Site, begins: Callable[[], None]) -> None:
        self._begun: dict[int, int] = {}
        self._begins = begins
        site.before(site.torch.utils.data.DataLoader, "__iter__", self._begin)

    @property
    def longest(self) -> int | None:
        """Batches in an epoch, as far as a loader says how many it has."""
        return max(self._begun, default=None)

    @property
    def begun(self) -> int:
        return self._begun[max(self._begun)] if self._begun else 0

    def forget(self) -> None:
        """Count from now on."""
        self._begun = dict.fromkeys(self._begun, 0)

    def _begin(self, loader: Any) -> None:
        try:
            length = len(loader)
        except (TypeError, NotImplementedError):
            length = 0
        if length:
            self._begun[length] = self._begun.get(length, 0) + 1
        self._begins()

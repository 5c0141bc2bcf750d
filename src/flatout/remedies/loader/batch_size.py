"""Batches so many times as large, and a learning rate to match.

Loaders that draw in random order get `times` their batch size, or `size` instead; those that read in order
(evaluation) stay. At each step the optimizer works with its learning rate times as much (linear), times the square
root of it ("sqrt", usual for Adam and its kin), one of these by the optimizer's kind ("auto"), or as it is ("none"),
whatever the script or a schedule has set; in between the script sees its own. Schedules and loops over epochs and
`len(loader)` follow by themselves; a loop that counts steps sees so many times the samples, and its number is yours to
lower.

Of the training class: fewer, larger steps learn something else, and statistics of batch normalisation are taken over
more samples; judge it by your own metric. Left alone, with the reason: loaders with a batch sampler or without a batch
size, batches of one, which as a rule hold a batch each, and data too small for ten of the larger batches.
"""

from __future__ import annotations

import math
from typing import Any

from ...records.message import Message, message
from ..answers import Answer, Report, no, optimizers, yes
from ..site import Site
from ..torch_hooks import hook_steps
from ..traits import Bottleneck, Knob, Traits
from ..values import Choice, Count, Options
from .arguments import LeftAlone, change_arguments

ID = "batch.size"
TITLE = "Larger batches, and a learning rate to match"
SAFETY = "training"
VALUE = Options(
    {"times": Count(2, 1024), "rate": Choice(("linear", "sqrt", "none", "auto")), "size": Count(1, 1 << 20)},
    {"times": 2, "rate": "linear"},
)
_TIMES = (1, 2, 4, 8, 16, 32, 64)
_SIZE = "batch_size"


def _value_of(knob: str, value: Any) -> Any:
    """A batch size is meant as such; the remedy's own value is how many times as large. Once is the script's own."""
    if knob == _SIZE:
        return {"size": value, "rate": "auto"}
    return False if value == 1 else {"times": value, "rate": "auto"} if isinstance(value, int) else value


TRAITS = Traits(Bottleneck.BATCH, knob=Knob((_SIZE,), _SIZE, lambda is_alone: _TIMES, _value_of))
_FEWEST_BATCHES = 10
_BY_ROOT = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Lion")


def applies(report: Report) -> Answer:
    if not any(finding.remedy == ID for finding in report.findings):
        return no(message("batch.large_enough"))
    rate = "sqrt" if any(str(known.get("type")) in _BY_ROOT for known in optimizers(report)) else "linear"
    return yes({"times": 2, "rate": rate}, message("batch.small_kernels"))


def apply(site: Site, value: Any) -> None:
    size, rate = value.get("size"), value["rate"]
    rates = _Rates(rate, 1.0 if size is not None else float(value["times"]), site)
    change_arguments(site, _LargerBatches(int(value["times"]), size, rates).change)
    if rate != "none":
        hook_steps(site, lambda optimizer, *_: rates.raise_in(optimizer), lambda optimizer, *_: rates.restore())
        site.undo(rates.restore)


class _LargerBatches:
    def __init__(self, times: int, size: int | None, rates: _Rates) -> None:
        self._times = times
        self._size = size
        # Told how many times as large the batches are, where that is only seen at the loader.
        self._rates = rates
        # Frameworks make a loader again from the one they are given: {id of the data: batch size we have set}.
        self._set: dict[int, int] = {}

    def change(self, arguments: dict[str, Any]) -> Message | None:
        before, dataset = arguments.get("batch_size"), arguments["dataset"]
        if not _draws_at_random(arguments) or self._set.get(id(dataset)) == before:
            return None
        if arguments.get("batch_sampler") is not None or not isinstance(before, int):
            raise LeftAlone(message("batch.no_size"))
        if before == 1:
            raise LeftAlone(message("batch.of_one"))
        after = before * self._times if self._size is None else self._size
        if after == before:
            return None
        if hasattr(dataset, "__len__") and len(dataset) < _FEWEST_BATCHES * after:
            raise LeftAlone(message("batch.too_few", samples=len(dataset), batches=_FEWEST_BATCHES, size=after))
        arguments["batch_size"] = self._set[id(dataset)] = after
        self._rates.times = after / before
        return message("batch.set", before=before, after=after)


def _draws_at_random(arguments: dict[str, Any]) -> bool:
    sampler = arguments.get("sampler")
    if sampler is None:
        return bool(arguments.get("shuffle")) or arguments.get("batch_sampler") is not None
    # Of samplers, only one that reads in order, or a distributed one that was told to, is an evaluation's.
    return type(sampler).__name__ != "SequentialSampler" and bool(getattr(sampler, "shuffle", True))


class _Rates:
    def __init__(self, rule: str, times: float, site: Site) -> None:
        self._rule = rule
        self.times = times
        self._site = site
        self._before: list[tuple[dict[str, Any], Any]] = []

    def raise_in(self, optimizer: Any) -> None:
        self.restore()  # a step that raised has left its own
        factor = self._factor(type(optimizer).__name__)
        for group in optimizer.param_groups:
            if "lr" in group and factor != 1.0:
                self._before.append((group, group["lr"]))
                group["lr"] = group["lr"] * factor
        self._site.tell(learning_rate_times=round(factor, 4))

    def _factor(self, optimizer: str) -> float:
        by_root = self._rule == "sqrt" or (self._rule == "auto" and optimizer in _BY_ROOT)
        return math.sqrt(self.times) if by_root else self.times

    def restore(self) -> None:
        for group, rate in self._before:
            group["lr"] = rate
        self._before.clear()

"""Python's collector runs between steps, seldom, and looks only at what came after the start.

After 10 steps all that lives is frozen (`gc.freeze`) and the collector's own rounds are off; it runs every 100 steps,
or as soon as 100,000 more objects live. `gc.collect()` and `torch.cuda.empty_cache()` of the script are done once in
100 steps. Lossless: no value depends on when garbage goes. Objects that refer to each other in a circle live a little
longer, and with them what they hold on the device: so both are done as ever when less than a tenth of the device's
memory is left, and all is undone when torch has to ask the driver for memory a second time (an allocator retry).

A collector that the script has switched off itself stays off. Workers of loaders that are forked collect as ever.
"""

from __future__ import annotations

import gc
import os
from functools import partial
from typing import Any

from ...records.message import message
from ..answers import by_finding
from ..site import Site
from ..traits import Bottleneck, Traits

ID = "gc.defer"
TITLE = "Memory is tidied up between steps, and seldom"
SAFETY = "lossless"
TRAITS = Traits(Bottleneck.HOST)
_WARM_UP_STEPS = 10
_EVERY_STEPS = 100
_MANY_OBJECTS = 100_000
_LITTLE_LEFT = 0.1

applies = by_finding(ID, message("gc.short"))


def apply(site: Site, value: Any) -> None:
    collector = _Collector(site)
    cuda = site.torch.cuda
    for owner, name, nothing in ((gc, "collect", 0), (cuda, "empty_cache", None), (cuda.memory, "empty_cache", None)):
        site.around(owner, name, partial(collector.call_seldom, name, nothing))
    site.each_step(collector.after_step)
    site.undo(collector.as_before)
    # There is no way to take it back: it asks whether it still counts.
    os.register_at_fork(after_in_child=collector.in_child)


class _Collector:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._collect = gc.collect
        self._is_off = False
        # By the name of the function.
        self._called_at = {"collect": 0, "empty_cache": 0}
        self._retries: int | None = None

    def after_step(self, step: int) -> None:
        if step == _WARM_UP_STEPS and gc.isenabled():
            self._collect()
            gc.freeze()
            gc.disable()
            self._is_off = True
            self._called_at["collect"] = step
            self._site.tell(collector_off_from_step=step, objects_frozen=gc.get_freeze_count())
        elif self._is_off and (self._is_due("collect") or gc.get_count()[0] >= _MANY_OBJECTS):
            self._called_at["collect"] = step
            self._collect()
        if step % 10 == 0:
            self._look_at_device()

    def _look_at_device(self) -> None:
        cuda = self._site.torch.cuda
        if not cuda.is_initialized():
            return
        retries = cuda.memory_stats().get("num_alloc_retries", 0)
        if self._retries is not None and retries > self._retries:
            self._site.give_up(message("gc.memory_short"))
        self._retries = retries

    def call_seldom(self, name: str, nothing: Any, original: Any, *args: Any, **kwargs: Any) -> Any:
        """`nothing` is what a call that is left out returns."""
        step = self._site.step
        if step >= _WARM_UP_STEPS and not self._is_due(name) and not self._is_short():
            return nothing
        self._called_at[name] = step
        return original(*args, **kwargs)

    def _is_due(self, name: str) -> bool:
        return self._site.step - self._called_at[name] >= _EVERY_STEPS

    def _is_short(self) -> bool:
        cuda = self._site.torch.cuda
        if not cuda.is_initialized():
            return False
        free, total = cuda.mem_get_info()
        unused = cuda.memory_reserved() - cuda.memory_allocated()
        return bool(free + unused < _LITTLE_LEFT * total)

    def in_child(self) -> None:
        if self._is_off:
            self._is_off = False
            gc.enable()

    def as_before(self) -> None:
        if self._is_off:
            self._is_off = False
            gc.unfreeze()
            gc.enable()

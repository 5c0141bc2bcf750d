"""Applies a profile's remedies in the user's process, as soon as torch is there, and keeps the record of each.

The words for the record wait until this process trains (or ends as the main one): loader workers and other children
apply the same remedies, but have nothing to tell.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ..feed.reasons import error_text, say
from ..records.message import Message, to_plain
from .catalogue import Remedy, known
from .site import Patching, Refused, Site


class Sites:
    """The remedies of a profile, each at its site in this process."""

    def __init__(
        self,
        torch: Any,
        wanted: Mapping[str, Any],
        patching: Callable[[str], Patching],
        after_import: Callable[[str, Callable[[Any], object]], None],
        changed: Callable[[Site], None] = lambda site: None,
    ) -> None:
        self.all: list[tuple[Remedy, Any, Site]] = []
        remedies = known()
        for name, value in wanted.items():
            if name in remedies and value is not False:
                mark = f"__flatout_{name.replace('.', '_')}__"
                site = Site(torch, patching(mark), after_import, changed, dict(wanted))
                self.all.append((remedies[name], value, site))

    def apply(self) -> None:
        for remedy, value, site in self.all:
            try:
                remedy.apply(site, value)
            except Refused as refused:
                site.revert()
                site.state, site.why = "refused", refused.why
            except Exception as error:
                site.revert()
                site.state, site.why = "failed", error_text(error)

    def stepped(self, step: int) -> None:
        for _, _, site in self.all:
            if site.in_force:
                site.stepped(step)

    @property
    def is_settling(self) -> bool:
        return any(site.in_force and site.is_settling for _, _, site in self.all)

    def rest(self, names: Collection[str]) -> None:
        """These let everything pass until they are no longer named; all others are in force."""
        for remedy, _, site in self.all:
            site.is_resting = remedy.id in names

    def revert(self) -> None:
        """Undo all, the last first."""
        for _, _, site in reversed(self.all):
            site.revert()

    def of(self, site: Site) -> tuple[Remedy, Any]:
        return next((remedy, value) for remedy, value, other in self.all if other is site)


class Applied(Sites):
    def __init__(
        self,
        torch: Any,
        wanted: Mapping[str, Any],
        patching: Callable[[str], Patching],
        after_import: Callable[[str, Callable[[Any], object]], None],
        note: Callable[[dict[str, object]], None],
    ) -> None:
        super().__init__(torch, wanted, patching, after_import, self._changed)
        self._note = note
        self._steps = 0
        self._pid = os.getpid()
        self._trains = False
        self._hook: Any = None

    def apply(self) -> None:
        super().apply()
        # torch.optim hides the module of this name behind its own namespace.
        optimizer = sys.modules["torch.optim.optimizer"]
        self._hook = optimizer.register_optimizer_step_post_hook(lambda *_: self._stepped())
        atexit.register(self._ends)

    def revert(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
            atexit.unregister(self._ends)
        super().revert()

    def leave(self) -> None:
        for _, _, site in self.all:
            site.leave()

    def _stepped(self) -> None:
        self._steps += 1
        if not self._trains:
            self.tell()
        self.stepped(self._steps)

    def _ends(self) -> None:
        if not self._trains and self._pid == os.getpid() and multiprocessing.parent_process() is None:
            self.tell()

    def tell(self) -> None:
        """This process trains: what became of every remedy so far, and from now on each change."""
        self._trains, self._pid = True, os.getpid()
        for _, _, site in self.all:
            self._write(site)

    def _changed(self, site: Site) -> None:
        remedy, _ = self.of(site)
        if site.state == "reverted":
            sys.stderr.write(f"flatout: {remedy.id} undone after {self._steps} steps: {_reason(site)}\n")
        if site.state == "refused":
            sys.stderr.write(f"flatout: {remedy.id} is not used: {_reason(site)}\n")
        if self._trains and self._pid == os.getpid():
            self._write(site)

    def _write(self, site: Site) -> None:
        remedy, value = self.of(site)
        self._note(
            {
                "id": remedy.id,
                "safety": remedy.safety,
                "value": value,
                "state": site.state,
                "why": site.plain_why,
                "step": self._steps,
                "live": {name: _plain(value) for name, value in site.live.items()},
            }
        )


def _plain(value: object) -> object:
    """As the recording holds it."""
    if isinstance(value, Message):
        return to_plain(value)
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _reason(site: Site) -> str:
    return "" if site.why is None else say(site.why)

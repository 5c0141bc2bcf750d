"""Applies a profile's remedies in the user's process, as soon as torch is there, and keeps the record of each.

The words for the record wait until this process trains (or ends as the main one): loader workers and other children
apply the same remedies, but have nothing to tell.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from .catalogue import Remedy, known
from .site import Patching, Refused, Site


class Applied:
    """The remedies in force in this process."""

    def __init__(
        self,
        torch: Any,
        wanted: Mapping[str, Any],
        patching: Callable[[str], Patching],
        after_import: Callable[[str, Callable[[Any], object]], None],
        note: Callable[[dict[str, object]], None],
    ) -> None:
        self._torch = torch
        self._note = note
        self._steps = 0
        self._pid = os.getpid()
        self._trains = False
        self._sites: dict[str, tuple[Remedy, Any, Site]] = {}
        self._hook: Any = None
        remedies = known()
        for name, value in wanted.items():
            if name in remedies and value is not False:
                mark = f"__flatout_{name.replace('.', '_')}__"
                site = Site(torch, patching(mark), after_import, self._changed, dict(wanted))
                self._sites[name] = (remedies[name], value, site)

    def apply(self) -> None:
        for remedy, value, site in self._sites.values():
            try:
                remedy.apply(site, value)
            except Refused as refused:
                site.revert()
                site.state, site.why = "refused", str(refused)
            except Exception as error:
                site.revert()
                site.state, site.why = "failed", f"{type(error).__name__}: {error}"
        # torch.optim hides the module of this name behind its own namespace.
        optimizer = sys.modules["torch.optim.optimizer"]
        self._hook = optimizer.register_optimizer_step_post_hook(lambda *_: self._stepped())
        atexit.register(self._ends)

    def revert(self) -> None:
        """Undo all, the last first."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
            atexit.unregister(self._ends)
        for _, _, site in reversed(self._sites.values()):
            site.revert()

    def _stepped(self) -> None:
        self._steps += 1
        if not self._trains:
            self.tell()
        for _, _, site in self._sites.values():
            if site.in_force:
                site.stepped(self._steps)

    def _ends(self) -> None:
        if not self._trains and self._pid == os.getpid() and multiprocessing.parent_process() is None:
            self.tell()

    def tell(self) -> None:
        """This process trains: what became of every remedy so far, and from now on each change."""
        self._trains, self._pid = True, os.getpid()
        for _, _, site in self._sites.values():
            self._write(site)

    def _changed(self, site: Site) -> None:
        if site.state == "reverted":
            remedy = next(one for one, _, other in self._sites.values() if other is site)
            sys.stderr.write(f"flatout: {remedy.id} undone after {self._steps} steps: {site.why}\n")
        if site.state == "refused":
            remedy = next(one for one, _, other in self._sites.values() if other is site)
            sys.stderr.write(f"flatout: {remedy.id} is not used: {site.why}\n")
        if self._trains and self._pid == os.getpid():
            self._write(site)

    def _write(self, site: Site) -> None:
        remedy, value = next((one, value) for one, value, other in self._sites.values() if other is site)
        self._note(
            {
                "id": remedy.id,
                "safety": remedy.safety,
                "value": value,
                "state": site.state,
                "why": site.why,
                "step": self._steps,
                "live": site.live,
            }
        )

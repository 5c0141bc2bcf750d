"""Keeps a loader's workers from one epoch to the next: `persistent_workers`.

A new epoch draws one number from the loader's generator for its workers; workers that are kept do not. That draw is
made all the same, so the order of samples and everything after it stays as it was. Random transforms go on where the
worker's generator stood instead of starting anew: the run's record says so where samples were seen to draw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..answers import Answer, by_finding
from ..values import Flag
from .arguments import change_arguments
from .randomness import tell_of_randomness

if TYPE_CHECKING:
    from ...records.report import RunReport
    from ..site import Site

ID = "loader.persistent"
TITLE = "Workers live on from one epoch to the next"
SAFETY = "lossless"
VALUE = Flag()


def applies(report: RunReport) -> Answer:
    return by_finding(report, ID, "starting workers takes no time worth mentioning")


def apply(site: Site, value: Any) -> None:
    def change(arguments: dict[str, Any]) -> str | None:
        if arguments.get("persistent_workers") or not arguments["num_workers"]:
            return None
        arguments["persistent_workers"] = True
        return "persistent_workers"

    change_arguments(site, change)
    site.after_import("torch.utils.data.dataloader", lambda module: _draw_as_before(site, module))
    tell_of_randomness(site)


def _draw_as_before(site: Site, module: Any) -> None:
    torch = site.torch

    def make(original: Any) -> Any:
        def _reset(iterator: Any, loader: Any, first_iter: bool = False) -> None:
            if not first_iter and site.in_force:
                torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
            original(iterator, loader, first_iter)

        return _reset

    site.replace(module._MultiProcessingDataLoaderIter, "_reset", make)

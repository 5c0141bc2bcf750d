"""Keeps a loader's workers from one epoch to the next: `persistent_workers`.

A new epoch draws one number from the loader's generator for its workers; workers that are kept do not. That draw is
made all the same, so the order of samples and everything after it stays as it was. A dataset that the script has
changed since gets new workers. Random transforms go on where the worker's generator stood instead of starting anew: the
run's record says so where samples were seen to draw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..answers import Answer, by_finding
from ..values import Flag
from .arguments import change_arguments
from .kept import draw_as_before, keep, renew_if_changed
from .randomness import TellOfRandomness, when_an_epoch_begins

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
    tell = TellOfRandomness(site)

    def change(arguments: dict[str, Any]) -> str | None:
        return "persistent_workers" if keep(arguments, ID) else None

    def begin(loader: Any) -> None:
        renew_if_changed(loader)
        tell.begin(loader)

    def install(module: Any) -> None:
        draw_as_before(site, module, ID)
        when_an_epoch_begins(site, module.DataLoader, begin)

    change_arguments(site, change)
    site.after_import("torch.utils.data.dataloader", install)

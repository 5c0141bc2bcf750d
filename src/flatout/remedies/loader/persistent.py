"""Keeps a loader's workers from one epoch to the next: `persistent_workers`.

A new epoch draws one number from the loader's generator for its workers; workers that are kept do not. That draw is
made all the same, so the order of samples and everything after it stays as it was. A dataset that the script has
changed since gets new workers, and so does a loader that is gone through while the script still holds an iterator of
it: that one goes on. Random transforms go on where the worker's generator stood instead of starting anew: the run's
record says so where samples were seen to draw. Left alone, with the reason: datasets that change as they are read.
"""

from __future__ import annotations

from typing import Any

from ...records.message import Message, message
from ..answers import by_finding
from ..site import Site
from ..traits import Bottleneck, Pauses, Traits
from ..user_code import caller
from ..values import Flag
from .arguments import change_arguments, install_copy_as_made, left_alone, restore_when_undone
from .kept_workers import draw_as_before, has_kept_workers, is_owned, keep_workers, release_kept_workers, renew_workers
from .probe import LIVE_ON, LoaderProbes, describe_randomness, is_stream, why_not_repeatable

ID = "loader.persistent"
TITLE = "Workers live on from one epoch to the next"
SAFETY = "lossless"
TRAITS = Traits(Bottleneck.LOADING, pauses=Pauses.BETWEEN_EPOCHS)
VALUE = Flag()
# On a loader: where the script makes it, until it was looked at.
_PLACE = "_flatout_to_be_kept"

applies = by_finding(ID, message("persistent.short"))


def apply(site: Site, value: Any) -> None:
    remember = restore_when_undone(site, "persistent_workers")
    deciding = _Deciding(site)

    def change(arguments: dict[str, Any]) -> Message | None:
        if not keep_workers(arguments, ID):
            return None
        remember(arguments["self"])
        vars(arguments["self"])[_PLACE] = caller(site.torch)
        return message("persistent.set")

    def install(module: Any) -> None:
        draw_as_before(site, module, ID)
        install_copy_as_made(site, module.DataLoader)
        site.before(module.DataLoader, "__iter__", deciding.begin)

    change_arguments(site, change)
    site.after_import("torch.utils.data.dataloader", install)


class _Deciding:
    """Looks at a loader when it is first gone through. One that got its workers from loader.workers is left to that."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._looks = LoaderProbes()

    def begin(self, loader: Any) -> None:
        if not has_kept_workers(loader) or not is_owned(loader, ID):
            return
        place = vars(loader).pop(_PLACE, None)
        if place is not None:
            self._decide(loader, place)
        renew_workers(self._site, loader)

    def _decide(self, loader: Any, place: str) -> None:
        looked = self._looks.at(loader)
        why = why_not_repeatable(loader.dataset) if is_stream(loader) else looked.why_not_kept
        if why is not None:
            release_kept_workers(loader)
            self._site.tell(**{place: left_alone(why)})
            return
        self._site.tell(randomness=describe_randomness(looked, LIVE_ON, is_stream(loader)))

"""Keeps more batches ready: `prefetch_factor`, the number of batches each worker makes ahead.

The same batches in the same order, made earlier; they wait in shared memory, so each costs its size there. Loaders
without workers make nothing ahead and are left alone, and so are those whose sampler draws with every batch.
"""

from __future__ import annotations

from typing import Any

from ...records.message import Message, message
from ..answers import by_finding
from ..site import Site
from ..traits import Bottleneck, Knob, Traits
from ..user_code import caller
from ..values import Count
from .arguments import (
    TORCHS_PREFETCH,
    arguments_as_made,
    change_arguments,
    install_copy_as_made,
    left_alone,
    record_arguments,
)
from .probe import Batching, LoaderProbes

ID = "loader.prefetch"
TITLE = "Each worker keeps more batches ready"
SAFETY = "lossless"
TRAITS = Traits(
    Bottleneck.LOADING,
    feeds_batches=True,
    knob=Knob(("prefetch", "prefetch_factor"), "prefetch_factor", lambda is_alone: (1, 2, 4, 8, 16)),
)
VALUE = Count(1, 1024)
# On a loader: where the script makes it, until its sampler was looked at.
_PLACE = "_flatout_to_be_filled"

applies = by_finding(ID, message("loader_prefetch.not_needed"), value=4)


def apply(site: Site, value: Any) -> None:
    looks = LoaderProbes()

    def change(arguments: dict[str, Any]) -> Message | None:
        before = arguments.get("prefetch_factor")
        if not arguments["num_workers"] or before == value:
            return None
        vars(arguments["self"])[_PLACE] = caller(site.torch)
        record_arguments(arguments, "prefetch_factor")
        arguments["prefetch_factor"] = value
        return message("loader_prefetch.set", before=2 if before is None else before, after=value)

    def begin(loader: Any) -> None:
        place = vars(loader).pop(_PLACE, None)
        if place is not None and Batching.of(loader).sampler is not None and looks.at(loader).order_draws:
            loader.prefetch_factor = arguments_as_made(loader)["prefetch_factor"] or TORCHS_PREFETCH
            site.tell(**{place: left_alone(message("loader_prefetch.sampler_draws"))})

    def install(module: Any) -> None:
        install_copy_as_made(site, module.DataLoader)
        site.before(module.DataLoader, "__iter__", begin)

    change_arguments(site, change)
    site.after_import("torch.utils.data.dataloader", install)

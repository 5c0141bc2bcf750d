"""Puts batches into pinned memory: `pin_memory`, also those of a class of your own.

From pinned memory the GPU copies by itself; the same bytes arrive. torch leaves a batch of an unknown class unpinned:
its tensors are found in its attributes and a copy of the object holds them pinned. Very large batches gain nothing,
for one thread has to copy them first. Without CUDA there is nothing to pin for, and it refuses.
"""

from __future__ import annotations

from typing import Any

from ...records.message import Message, message
from ..answers import by_finding
from ..site import Refused, Site
from ..torch_hooks import has_gpu
from ..traits import Bottleneck, Traits
from .arguments import change_arguments

ID = "loader.pin"
TITLE = "Batches are put into pinned memory"
SAFETY = "lossless"
TRAITS = Traits(
    Bottleneck.LOADING, feeds_batches=True, can_rest=True, pairs_with=("transfer.async", "transfer.prefetch")
)

applies = by_finding(ID, message("pin.short"))


def apply(site: Site, value: Any) -> None:
    if not has_gpu(site.torch):
        raise Refused(message("pin.no_device"))

    def change(arguments: dict[str, Any]) -> Message | None:
        if arguments.get("pin_memory"):
            return None
        arguments["pin_memory"] = True
        return message("pin.set")

    from ...feed import leaves

    change_arguments(site, change)
    site.replace(leaves, "wants_pinning", lambda original: lambda: not site.is_resting and original())
    site.after_import("torch.utils.data._utils.pin_memory", lambda module: _pin_unknown_classes(site, module))


def _pin_unknown_classes(site: Site, module: Any) -> None:
    from ...feed.leaves import pin_all

    def make(original: Any) -> Any:
        def pin_memory(data: Any, device: Any = None) -> Any:
            if site.is_resting:
                return data
            pinned = original(data, device)
            return pin_all(pinned) if site.in_force else pinned

        return pin_memory

    site.replace(module, "pin_memory", make)

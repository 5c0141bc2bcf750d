"""Copies the next batch to the device on a stream of its own, while the model works on this one.

The script's own `.to(device)` then finds the tensor there and does nothing. Same bytes, same order: nothing changes but
when they are copied. For three batches it looks at what the script does first with each tensor: only those that go
straight to one CUDA device are brought ahead, and it is undone where the script reads or changes a batch on the host
before, or uses it again after it has moved it. It needs pinned batches (loader.pin) and a loader with workers; others
are left as they are.
"""

from __future__ import annotations

from typing import Any

from ...records.message import message
from ..answers import by_codes
from ..site import Refused, Site
from ..torch_hooks import has_gpu
from ..traits import Bottleneck, Traits, WarmUp

ID = "transfer.prefetch"
TITLE = "The next batch is copied while the model works on this one"
SAFETY = "lossless"
TRAITS = Traits(
    Bottleneck.TRANSFER,
    feeds_batches=True,
    can_rest=True,
    warm_up=WarmUp(10),
    pairs_with=("loader.pin", "transfer.async"),
)
_LOOKS = 3

applies = by_codes(("TR206", "TR204"), message("transfer_prefetch.take_turns"), message("transfer_prefetch.not_needed"))


def apply(site: Site, value: Any) -> None:
    if not has_gpu(site.torch):
        raise Refused(message("transfer_prefetch.no_device"))
    site.after_import("torch.utils.data.dataloader", lambda module: _install(site, module))


def _install(site: Site, module: Any) -> None:
    from ...feed.device_prefetch import BringAhead

    bring = BringAhead(site.torch, _LOOKS, site.tell, site.give_up)

    def make(original: Any) -> Any:
        def __next__(iterator: Any) -> Any:
            # Evaluations are left alone: they need not treat a batch as the training does.
            if not bring.holds(iterator) and not (site.in_force and site.torch.is_grad_enabled()):
                return original(iterator)
            return bring.next(iterator, original, site.is_resting)

        return __next__

    site.replace(module._MultiProcessingDataLoaderIter, "__next__", make)

"""Copies of pinned batches to the device no longer hold up the host: `non_blocking=True` where a loader has pinned.

Lossless: kernels that use the copy come after it in the same queue, and torch does not give the pinned memory to anyone
else before the copy is over. The one thing that could be seen is a batch that the script writes into on the host right
after copying it. So only tensors that came out of a loader's pinning are copied this way (a buffer of the script's own
may be filled again), and for its first 20 steps it only looks: a script that writes into batches it has copied is left
alone, then and later. A write through numpy's view of a batch would not be seen.

Refuses without CUDA; gives up when the script enters CUDA streams of its own, for which a blocking copy is the only
order it may have. An explicit `non_blocking=False` stays.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from functools import partial
from typing import Any

from ...records.message import message
from ..answers import Answer, Report, by_finding, yes
from ..site import Refused, Site
from ..torch_hooks import when_stream_entered
from ..traits import Bottleneck, Traits, WarmUp

ID = "transfer.async"
TITLE = "Pinned batches are copied without holding up the host"
SAFETY = "lossless"
# A copy can only go on beside the kernels from pinned memory, and pinning costs a copy: neither does much alone.
TRAITS = Traits(Bottleneck.TRANSFER, can_rest=True, warm_up=WarmUp(25), pairs_with=("loader.pin", "transfer.prefetch"))
_ONLY_LOOKS_STEPS = 20
_PINS = "loader.pin"


def applies(report: Report) -> Answer:
    answer = by_finding(ID, message("async_copies.not_needed"))(report)
    if not answer.is_yes and any(finding.remedy == _PINS for finding in report.findings):
        # Pinning alone makes a copy quicker, but the host still waits for it, and for the kernels before it.
        return yes(True, message("async_copies.once_pinned"))
    return answer


def apply(site: Site, value: Any) -> None:
    torch = site.torch
    if torch.version.cuda is None:
        raise Refused(message("torch.no_cuda"))
    batches = PinnedBatches(torch)
    copies = _Copies(site, batches)
    site.after_import(
        "torch.utils.data._utils.pin_memory",
        lambda module: site.after(module, "pin_memory", lambda pinned, *args, **kwargs: batches.came(pinned)),
    )
    site.replace(torch.Tensor, "pin_memory", partial(_make_pin, site, batches))
    site.replace(torch.Tensor, "to", copies.make_to)
    site.replace(torch.Tensor, "cuda", copies.make_to)
    site.replace(torch.Tensor, "copy_", copies.make_copy)
    site.each_step(copies.after_step)
    when_stream_entered(site, lambda: site.give_up(message("streams.own")))


def _make_pin(site: Site, batches: PinnedBatches, original: Any) -> Any:
    """Our own loader pins tensor by tensor."""

    def pin_memory(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        pinned = original(tensor, *args, **kwargs)
        if site.in_force and ".feed." in str(sys._getframe(1).f_globals.get("__name__")):
            site.guarded(lambda: batches.came(pinned))
        return pinned

    return pin_memory


class _Copies:
    def __init__(self, site: Site, batches: PinnedBatches) -> None:
        self._site = site
        self._batches = batches
        self._compiling = site.torch.compiler.is_dynamo_compiling
        self._overridden = site.torch.overrides.has_torch_function_unary
        self._begun = False
        self._count = 0

    def make_to(self, original: Any) -> Any:
        def to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if self._compiling() or not self._concerns(tensor):
                return original(tensor, *args, **kwargs)
            if self._begun and leaves_blocking_open(args, kwargs):
                kwargs = {**kwargs, "non_blocking": True}
            result = original(tensor, *args, **kwargs)
            if result.is_cuda:
                self._copied(tensor)
            return result

        return to

    def make_copy(self, original: Any) -> Any:
        def copy_(tensor: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
            if self._compiling() or not self._concerns(source) or not tensor.is_cuda:
                return original(tensor, source, *args, **kwargs)
            if self._begun and leaves_blocking_open(args, kwargs):
                kwargs = {**kwargs, "non_blocking": True}
            result = original(tensor, source, *args, **kwargs)
            self._copied(source)
            return result

        return copy_

    def _concerns(self, tensor: Any) -> bool:
        # A subclass that overrides functions, or a mode around the call, has its own idea of what a copy is.
        return self._batches.has(tensor) and not self._overridden(tensor) and self._site.in_force

    def _copied(self, tensor: Any) -> None:
        self._count += 1
        self._site.guarded(lambda: self._batches.note_copy(tensor))

    def after_step(self, step: int) -> None:
        if self._batches.written_after_copy():
            self._site.give_up(message("async_copies.written"))
        elif not self._begun and step >= _ONLY_LOOKS_STEPS and self._count:
            self._begun = True
            self._site.tell(non_blocking_from_step=step)


def leaves_blocking_open(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the script leaves it open; a bare True or False among the arguments is its word."""
    return "non_blocking" not in kwargs and not any(isinstance(argument, bool) for argument in args)


# Pinned tensors that came out of a loader, and whether the script writes into them after copying. A tensor that a
# loader has pinned belongs to one batch: it is copied once and dropped, and torch keeps its memory until the copy is
# over. A pinned buffer of the script's own may be filled again right after the copy, so it does not count.

_DEEPEST = 8
# Copies that are watched for a later write; a batch is not held back for it.
_WATCHED = 64


class PinnedBatches:
    def __init__(self, torch: Any) -> None:
        self._tensor = torch.Tensor
        # By identity: tensors compare element by element.
        self._known: dict[int, weakref.ref[Any]] = {}
        self._copied: deque[tuple[weakref.ref[Any], int]] = deque(maxlen=_WATCHED)

    def came(self, batch: Any, depth: int = 0) -> None:
        if isinstance(batch, self._tensor):
            self._remember(batch)
        elif depth < _DEEPEST:
            for part in _parts(batch):
                self.came(part, depth + 1)

    def _remember(self, tensor: Any) -> None:
        number, known = id(tensor), self._known
        known[number] = weakref.ref(tensor, lambda _: known.pop(number, None))

    def has(self, tensor: Any) -> bool:
        found = self._known.get(id(tensor))
        return found is not None and found() is tensor

    def note_copy(self, tensor: Any) -> None:
        """It is on its way to a device."""
        self._copied.append((self._known[id(tensor)], tensor._version))

    def written_after_copy(self) -> bool:
        """Whether the script has changed a batch on the host after it was copied. Looked at once a step."""
        seen = [(reference(), version) for reference, version in self._copied]
        self._copied = deque(
            (item for item, (tensor, _) in zip(self._copied, seen, strict=True) if tensor is not None), maxlen=_WATCHED
        )
        return any(tensor is not None and tensor._version != version for tensor, version in seen)


def _parts(batch: Any) -> list[Any]:
    if isinstance(batch, dict):
        return list(batch.values())
    if isinstance(batch, list | tuple):
        return list(batch)
    # A batch of the script's own type, which pins itself.
    return list(getattr(batch, "__dict__", {}).values())

"""Keeps what checkpointed parts of the model compute, instead of computing it again in backward.

Activation checkpointing (`torch.utils.checkpoint`) saves memory with a second forward pass. Where that memory lies
idle, the parts are simply run: losses, weights and random numbers are the same to the last bit. For two steps it looks
on, in the third it keeps some of the parts and counts their bytes, then as many as fit: at most four fifths of the
device with all that the training needs besides, half of what is free on a CPU. When memory becomes short later, it
stops.

Left as they are: parts with their own rules of what to keep (`context_fn`), and in reentrant mode those that get no
gradient. Refused where a part changes a buffer of its modules, as a batch norm in training does: run twice it moves
twice, and that would be another training; and where it cannot be seen which modules a part runs. Refused with several
processes, which might not agree on what fits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import get_ident
from typing import Any

from ...records.message import message
from ..answers import Answer, Report, by_finding, no, torch_state
from ..site import Site
from ..traits import Bottleneck, Traits

ID = "memory.keep"
TITLE = "Checkpointed parts kept in memory, not computed again"
SAFETY = "lossless"
TRAITS = Traits(Bottleneck.MEMORY, can_rest=True)
CONFLICTS = ("memory.checkpointing", "compile.model")

_LOOKED_ON = 2
# Of so many calls one is kept while bytes are counted; they are taken to be so much more than that shows.
_ONE_OF, _MARGIN = 8, 1.3
_LEAST_SHARE = 0.25
_CHECK_EVERY = 10
# What the call itself is told; all else goes to the function.
_OPTIONS = ("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state")
_LEFT = ("context_fn", "debug")


def applies(report: Report) -> Answer:
    if torch_state(report).get("compiled"):
        return no(message("memory_keep.compiled"))
    if report.run.ranks > 1:
        return no(message("memory_keep.ranks"))
    return by_finding(ID, message("memory_keep.not_needed"))(report)


def apply(site: Site, value: Any) -> None:
    keeping = KeptActivations(site)
    site.after_import("torch.utils.checkpoint", keeping.install)
    site.each_step(keeping.stepped)


class KeptActivations:
    """Looks on, counts, keeps."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._steps = 0
        self._calls = self._most_calls = 0
        # Of the calls of a step, the first so many are kept.
        self._kept = 0
        self._saved = SavedBytes(site.torch)
        self._within = False
        self._thread: int | None = None
        self._is_used = False

    def install(self, module: Any) -> None:
        self._site.replace(module, "checkpoint", self._make)

    def stepped(self, step: int) -> None:
        self._most_calls = max(self._most_calls, self._calls)
        self._steps, self._calls = step, 0
        if step == _LOOKED_ON:
            distributed = self._site.torch.distributed
            if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
                self._site.refuse(message("memory_keep.ranks"))
            elif not self._is_used:
                self._site.refuse(message("memory_keep.not_used"))
        elif step == _LOOKED_ON + 1:
            self._decide()
        elif step > _LOOKED_ON and step % _CHECK_EVERY == 0 and room_bytes(self._site.torch, self._saved.device) < 0:
            self._site.give_up(message("memory_keep.short"))

    def _decide(self) -> None:
        if not self._saved.calls:
            self._site.refuse(message("memory_keep.nothing_kept"))
            return
        each = self._saved.bytes / self._saved.calls
        needed, room = _MARGIN * each * self._most_calls, room_bytes(self._site.torch, self._saved.device)
        share = min(1.0, max(0.0, room) / needed) if needed else 1.0
        if share < _LEAST_SHARE:
            self._site.refuse(
                message("memory_keep.no_room", needed_gib=needed / 2**30, free_gib=max(0.0, room) / 2**30)
            )
            return
        self._kept = math.floor(share * self._most_calls)
        said = message("memory_keep.kept", kept=self._kept, calls=self._most_calls, mib=each * self._kept / 2**20)
        self._site.tell(kept=said)
        if share >= 1.0:
            self._kept = 1 << 60  # however many a step has

    def _make(self, original: Any) -> Any:
        site, has_graph = self._site, self._site.torch.is_grad_enabled

        def checkpoint(function: Any, *args: Any, **kwargs: Any) -> Any:
            plain = partial(original, function, *args, **kwargs)
            self._thread = self._thread or get_ident()
            # One within another is part of that one; what runs in other threads (replicas, backward) is not counted.
            if not site.in_force or self._within or self._thread != get_ident():
                return plain()
            if not has_graph():
                return plain()
            self._is_used = True
            if self._is_left(args, kwargs):
                return plain()
            number, self._calls = self._calls, self._calls + 1
            own = {name: value for name, value in kwargs.items() if name not in _OPTIONS}
            self._within = True
            try:
                if self._steps < _LOOKED_ON:
                    return self._looked_on(function, plain)
                if self._steps == _LOOKED_ON and number % _ONE_OF == 0:
                    weights = (
                        parameter for module in _modules_of(site.torch, function) for parameter in module.parameters()
                    )
                    with self._saved.counted([*args, *own.values(), *weights]):
                        return function(*args, **own)
                return function(*args, **own) if number < self._kept else plain()
            finally:
                self._within = False

        return checkpoint

    def _is_left(self, args: Any, kwargs: Any) -> bool:
        if any(kwargs.get(name) for name in _LEFT) or self._site.torch.compiler.is_compiling():
            return True
        if kwargs.get("use_reentrant") is False:
            return False
        # In reentrant mode, the default of most versions, a part without such an argument gets no gradient at all.
        tensor = self._site.torch.Tensor
        return not any(isinstance(argument, tensor) and argument.requires_grad for argument in args)

    def _looked_on(self, function: Any, plain: Any) -> Any:
        if next(_modules_of(self._site.torch, function), None) is None:
            self._site.refuse(message("memory_keep.modules_unknown"))
        before = self._versions(function)
        result = plain()
        if self._versions(function) != before:
            self._site.refuse(message("memory_keep.changes_buffer"))
        return result

    def _versions(self, function: Any) -> list[tuple[int, int]]:
        modules = _modules_of(self._site.torch, function)
        return [(id(buffer), buffer._version) for module in modules for buffer in module.buffers()]


def _modules_of(torch: Any, function: Any, depth: int = 3) -> Iterator[Any]:
    """The modules that a function is, is bound to, or refers to."""
    if isinstance(function, torch.nn.Module):
        yield function
        return
    if isinstance(function, partial):
        inner = (function.func, *function.args, *function.keywords.values())
    else:
        cells = getattr(function, "__closure__", None) or ()
        inner = (getattr(function, "__self__", None), *(_content(cell) for cell in cells))
    for item in inner if depth else ():
        is_list = isinstance(item, list | tuple)
        for part in item if is_list else (item,):
            if part is not None and (isinstance(part, torch.nn.Module) or callable(part)):
                yield from _modules_of(torch, part, depth - 1)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


# How many bytes a part of the model keeps for backward, and how many there is room for.

# With all that the training needs besides; and of what a computer without a GPU has free.
_OF_DEVICE = 0.8
_OF_HOST = 0.5


class SavedBytes:
    """Of the calls that were counted."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.bytes = 0
        self.calls = 0
        self.device: Any = None

    @contextmanager
    def counted(self, given: Any) -> Iterator[None]:
        """What autograd saves within is counted, but for what was given: inputs and weights are there anyway."""
        known = {_place(tensor) for tensor in given if isinstance(tensor, self._torch.Tensor)}

        def pack(tensor: Any) -> Any:
            place = _place(tensor)
            if place not in known:
                known.add(place)
                self.bytes += tensor.untyped_storage().nbytes()
                self.device = tensor.device
            return tensor

        with self._torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield
        self.calls += 1


def _place(tensor: Any) -> int:
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):  # a tensor of a kind without a storage
        return id(tensor)


def room_bytes(torch: Any, device: Any) -> float:
    """For what is to be kept: below zero where the training itself has come to the limit."""
    if device is not None and device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        # What this process has reserved it can use, as far as the script lets it; what it used at most it will again.
        usable = min(free + torch.cuda.memory_reserved(device), _allowed_share(torch, device) * total)
        return float(_OF_DEVICE * usable - torch.cuda.max_memory_allocated(device))
    from ...feed.machine import free_bytes

    free = free_bytes()
    return float("inf") if free is None else _OF_HOST * free


def _allowed_share(torch: Any, device: Any) -> float:
    ask = getattr(torch.cuda, "get_per_process_memory_fraction", None)
    try:
        return 1.0 if ask is None else float(ask(device))
    except (RuntimeError, ValueError, TypeError):
        return 1.0

"""Runs the repeated blocks of the model again in backward, instead of holding what they computed.

Between the passes only the inputs of each block are held; in backward one block after the other is run again, by
`torch.utils.checkpoint`. The second run draws the random numbers of the first, so dropout is the same, and moves no
running statistics: losses and weights are the same to the last bit. The price is a second forward pass of these
blocks, about a third of the step; what it buys is memory for a larger batch or a longer sequence. From the first
training call on, before memory can run out.

Blocks are children of one class in a list or sequence of modules, as the layers of a transformer or the stages of a
residual network; lists within blocks count as part of them. Each is tried out first, without a graph. Refused
where there are none, where a block returns or is given a cache or another object that may hold tensors, changes its
arguments or buffers other than running statistics in place, leaves something behind on itself, draws random numbers on
the host, has hooks, or is compiled, where the model changes what it has given a block (as `h += block(h)` does), and
where the script checkpoints itself.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from ...feed.reasons import error_text
from ...records.message import Message, message
from ..answers import by_codes
from ..model.module_calls import SavedState, at_first_calls, check_hooks, is_compiled, replace_call
from ..model.repeated_calls import (
    GivenTensors,
    HostRandomness,
    ModelSnapshot,
    Modes,
    NotPlain,
    fill_tensors,
    tensors_of,
)
from ..site import Refused, Site
from ..traits import Bottleneck, Traits
from ..user_code import is_called_within

ID = "memory.checkpointing"
TITLE = "Repeated blocks run again in backward, for memory"
SAFETY = "lossless"
TRAITS = Traits(Bottleneck.MEMORY)
CONFLICTS = ("compile.model", "graphs.model")


applies = by_codes(("ME704",), message("memory.allocator_retries"), message("memory.not_short"))


def apply(site: Site, value: Any) -> None:
    blocks: dict[str, Any] = {}

    def prepare(module: Any) -> None:
        torch = site.torch
        # Inside a wrapper for several processes the blocks are as ever.
        inner = module.module if type(module).__name__ in ("DistributedDataParallel", "DataParallel") else module
        if type(module).__name__ == "DataParallel" or type(module).__name__.startswith(("Fully", "FSDP")):
            raise Refused(message("checkpointing.copies", module=type(module).__name__))
        if is_compiled(module):
            raise Refused(message("model.script_compiles"))
        more = repeated_blocks(torch, inner)
        for block in more.values():
            check_hooks(torch, block)
            replace_call(site, block, CheckpointedCall(site, block))
        blocks.update(more)
        site.tell(blocks=len(blocks), kinds=", ".join(sorted({type(block).__name__ for block in blocks.values()})))

    def step(number: int) -> None:
        if not blocks:
            site.refuse(message("checkpointing.no_blocks"))

    at_first_calls(site, prepare)
    site.each_step(step)


class CheckpointedCall:
    goes_with_others = True

    def __init__(self, site: Site, block: Any) -> None:
        self._site = site
        self._torch = site.torch
        self._block = block
        self._is_tried = False
        # Not every torch has loaded it by itself.
        self._checkpoint = importlib.import_module("torch.utils.checkpoint").checkpoint
        self._has_statistics = any(_keeps_statistics(site.torch, part) for part in block.modules())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        torch, block = self._torch, self._block
        if not self._site.in_force or not block.training or not torch.is_grad_enabled():
            return block._call_impl(*args, **kwargs)
        if torch.compiler.is_dynamo_compiling():
            return block._call_impl(*args, **kwargs)
        is_first, self._is_tried = not self._is_tried, True
        why = self._why_not(args, kwargs) if is_first else None
        if why is not None:
            self._site.refuse(message("checkpointing.cannot_rerun", block=type(block).__name__, why=why))
            return block._call_impl(*args, **kwargs)
        try:
            given = GivenTensors(tensors_of(torch, (args, kwargs)), keeps=is_first)
        except (NotPlain, RuntimeError):  # another kind of call than the one that was tried
            return block._call_impl(*args, **kwargs)
        contexts = {"context_fn": self._contexts} if self._has_statistics else {}
        # Torch keeps the random numbers of the devices it sees among the arguments: a weight is always on the block's.
        weight = next(block.parameters())
        run = self._twice(given, Modes(block))
        return self._checkpoint(run, args, kwargs, weight, use_reentrant=False, **contexts)

    def _twice(self, given: GivenTensors, modes: Modes) -> Any:
        """What is called in forward, and again in backward, where it has to find what it found the first time."""
        passes = 0

        def run(args: Any, kwargs: Any, weight: Any) -> Any:
            nonlocal passes
            passes += 1
            if passes == 1:
                return self._block._call_impl(*args, **kwargs)
            if given.is_changed:
                args, kwargs = self._as_given(given, args, kwargs)
            with modes:
                return self._block._call_impl(*args, **kwargs)

        return run

    def _as_given(self, given: GivenTensors, args: Any, kwargs: Any) -> Any:
        name, then = type(self._block).__name__, given.then
        if then is None:
            self._site.give_up(message("checkpointing.input_changed_wrong", block=name))
            return args, kwargs
        self._site.refuse(message("checkpointing.input_changed", block=name))
        return fill_tensors(self._torch, (args, kwargs), then)

    def _why_not(self, args: Any, kwargs: Any) -> Message | None:
        try:
            return self._try(args, kwargs)
        except NotPlain as error:
            return message("checkpointing.not_plain", what=error.why)
        except Exception as error:  # the script's own error comes again, from the call itself
            return message("checkpointing.try_failed", error=error_text(error))

    def _try(self, args: Any, kwargs: Any) -> Message | None:
        """Run it once without a graph and look at what it does besides. Nothing of it stays."""
        torch, block = self._torch, self._block
        if is_called_within("torch.utils.checkpoint"):
            return message("checkpointing.by_script")
        tensors = [tensor.detach().clone() for tensor in tensors_of(torch, (args, kwargs))]
        buffers = [
            buffer for part in block.modules() if not _keeps_statistics(torch, part) for buffer in _buffers(part)
        ]
        held = [tensor._version for tensor in (*tensors, *buffers)]
        fixed, host, before = (
            ModelSnapshot(torch, block),
            HostRandomness(torchs_too=False),
            SavedState(torch, block),
        )
        args, kwargs = fill_tensors(torch, (args, kwargs), tensors)
        try:
            with torch.no_grad():
                list(tensors_of(torch, block._call_impl(*args, **kwargs)))
            if host.was_used():
                return message("checkpointing.draws_on_host")
            if (changed := fixed.changed()) is not None:
                return message("checkpointing.leaves_change", changed=changed)
            if [tensor._version for tensor in (*tensors, *buffers)] != held:
                return message("checkpointing.changes_arguments")
            return None
        finally:
            before.restore()
            host.restore()

    def _contexts(self) -> tuple[Any, Any]:
        return nullcontext(), self._without_statistics()

    @contextmanager
    def _without_statistics(self) -> Iterator[None]:
        """The first run has moved them already; the second moves copies."""
        parts = [part for part in self._block.modules() if _keeps_statistics(self._torch, part)]
        kept = [(part, dict(part._buffers)) for part in parts]
        try:
            for part, buffers in kept:
                part._buffers.update({name: value.clone() for name, value in buffers.items() if value is not None})
            yield
        finally:
            for part, buffers in kept:
                part._buffers.update(buffers)


def _buffers(part: Any) -> list[Any]:
    return [buffer for buffer in part._buffers.values() if buffer is not None]


def _keeps_statistics(torch: Any, part: Any) -> bool:
    """What it computes in training does not depend on them."""
    of_batches = torch.nn.modules.batchnorm._BatchNorm, torch.nn.modules.instancenorm._InstanceNorm
    return isinstance(part, of_batches) and bool(_buffers(part))


# The repeated blocks of a model: children of one class in a list or a sequence.

_FEWEST = 2


def repeated_blocks(torch: Any, model: Any) -> dict[str, Any]:
    """{name: block}, the outermost ones only. A single layer is no block: there is nothing in it to run again."""
    found: dict[str, Any] = {}
    containers = (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)
    for name, container in model.named_modules():
        if not isinstance(container, containers) or any(_is_within(name, block) for block in found):
            continue
        children = {child: part for child, part in container.named_children() if _is_block(part)}
        counts = Counter(type(part) for part in children.values())
        for child, part in children.items():
            if counts[type(part)] >= _FEWEST:
                found[f"{name}.{child}" if name else child] = part
    return found


def _is_block(part: Any) -> bool:
    return next(part.children(), None) is not None and next(part.parameters(), None) is not None


def _is_within(name: str, block: str) -> bool:
    return name == block or name.startswith(f"{block}.")

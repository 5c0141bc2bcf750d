"""One step from several smaller passes: a batch that does not fit runs in `parts`, and its gradients are added up.

The model is called with one part of the batch after the other and only one part's activations are held; the script
sees one call with the whole result. So its loss is over the whole batch, with any mean, mask or weight in it; clipping,
gradient scaling, optimizers and schedules work once a step as ever, and a last, smaller batch is split like the
others. The price is a second forward pass, about a third of the step. From the first call on, before memory can run
out. What the model returns for the whole batch (its logits) is still held.

Of the training class: dropout draws other numbers, and a batch normalisation, if you allow it
("parts=4,batchnorm=allow"), takes its statistics over a part. Refused where parts do not give what the whole gives,
which is tried out first, and for models that return one value for the batch (a loss), leave something behind on
themselves, draw random numbers on the host, have hooks, or are compiled or wrapped for several devices; and where the
script writes into its batch before the backward pass, which the first step shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...feed.reasons import Reasoned, error_text
from ...records.message import message
from ..answers import by_codes
from ..model.module_calls import SavedState, at_first_calls, check_hooks, check_plain, replace_call
from ..model.repeated_calls import (
    GivenTensors,
    Modes,
    NotPlain,
    RandomNumbers,
    WatchedCall,
    current_autocast,
    fill_tensors,
    form_of,
    gradients_of,
    map_tensors,
    tensors_of,
)
from ..site import Refused, Site
from ..traits import Bottleneck, Traits
from ..values import Choice, Count, Options

ID = "batch.accumulate"
TITLE = "A batch in several smaller passes, for memory"
SAFETY = "training"
TRAITS = Traits(Bottleneck.MEMORY)
_USUAL = {"parts": 2, "batchnorm": "refuse"}
VALUE = Options({"parts": Count(2, 1024), "batchnorm": Choice(("refuse", "allow"))}, _USUAL)
CONFLICTS = ("compile.model", "graphs.model")


applies = by_codes(("ME704",), message("memory.allocator_retries"), message("memory.not_short"), _USUAL)


def apply(site: Site, value: Any) -> None:
    def prepare(module: Any) -> None:
        check_plain(module)
        check_hooks(site.torch, module)
        if value["batchnorm"] != "allow":
            _check_statistics(site.torch, module)
        replace_call(site, module, MicroBatchedCall(site, module, int(value["parts"])))

    at_first_calls(site, prepare)


def _check_statistics(torch: Any, module: Any) -> None:
    for part in module.modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and part.training:
            raise Refused(message("accumulate.statistics", module=type(part).__name__))


# A module's call in parts. Forward runs without a graph, part by part, and returns the whole result, so the script's
# loss is over the whole batch. In backward each part runs again with the same random numbers, and gradients are added
# up: at most one part's activations are held at any time.

_CLOSE, _CLOSE_HALF = 1e-3, 5e-2


class NotSplit(Reasoned):
    """The call cannot be made in parts; the words say why."""


@dataclass(slots=True)
class _Parts:
    """One call: which of its tensors go by parts, and how it was made.

    It lives as long as the script holds the loss, and so it holds no tensors, but for those of the first call.
    """

    arguments: Any
    sizes: list[int]
    is_split: list[bool]
    autocast: Callable[[], Any]
    modes: Modes
    given: GivenTensors | None
    random: list[RandomNumbers]

    def of(self, torch: Any, tensors: tuple[Any, ...]) -> list[list[Any]]:
        pieces = [
            tensor.split(self.sizes) if split else [tensor] * len(self.sizes)
            for tensor, split in zip(tensors, self.is_split, strict=True)
        ]
        return [[piece[number] for piece in pieces] for number in range(len(self.sizes))]


class MicroBatchedCall:
    goes_with_others = True

    def __init__(self, site: Site, module: Any, parts: int) -> None:
        self._site = site
        self._torch = site.torch
        self._module = module
        self._count = parts
        self._is_busy = False
        # Which tensors went by parts in the call that was tried out; None before.
        self._is_split: list[bool] | None = None
        self._parameters = dict(module.named_parameters())
        self._node = _node(site.torch, self)
        # How the results of a call are nested, with a tensor of the last part at each place.
        self._nested: Any = None
        # Which of them have gradients.
        self._is_trained: list[bool] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        torch, module = self._torch, self._module
        is_for_us = self._site.in_force and not self._is_busy and module.training and torch.is_grad_enabled()
        if not is_for_us or torch.compiler.is_dynamo_compiling():
            return module._call_impl(*args, **kwargs)
        before = SavedState(torch, module)
        try:
            return self._in_parts((args, kwargs))
        except torch.OutOfMemoryError:
            raise
        except (NotSplit, NotPlain) as error:
            self._site.refuse(message("accumulate.cannot_split", module=type(module).__name__, why=error.why))
        except Exception as error:
            self._site.give_up(message("accumulate.failed", module=type(module).__name__, error=error_text(error)))
        before.restore()
        return module._call_impl(*args, **kwargs)

    def _in_parts(self, arguments: Any) -> Any:
        torch = self._torch
        tensors = tuple(tensors_of(torch, arguments))
        parts = self._parts(arguments, tensors)
        if len(parts.sizes) < 2:
            return self._module._call_impl(*arguments[0], **arguments[1])
        if self._is_split is None:
            self._try(parts, tensors)
            self._is_split = parts.is_split
        # A module whose weights were replaced since is called with those it has.
        self._parameters = dict(self._module.named_parameters())
        results = self._node.apply(parts, *tensors, *self._parameters.values())
        following = iter(results)
        return map_tensors(torch, self._nested, lambda _: next(following))

    def _parts(self, arguments: Any, tensors: tuple[Any, ...]) -> _Parts:
        batch = next((tensor.shape[0] for tensor in tensors if tensor.dim()), 0)
        count = min(self._count, batch)
        sizes = [batch // count + (number < batch % count) for number in range(count)] if count else []
        is_split = [bool(tensor.dim()) and tensor.shape[0] == batch for tensor in tensors]
        if self._is_split is not None:
            # A table may by chance have as many rows as this batch: only what was tried out is split.
            if len(is_split) != len(self._is_split) or any(
                was and not can for was, can in zip(self._is_split, is_split, strict=True)
            ):
                sizes = []
            is_split = self._is_split
        device = next(iter(self._parameters.values())).device.type
        given = GivenTensors(tensors, keeps=True) if self._is_split is None else None
        modes, autocast = Modes(self._module), current_autocast(self._torch, device)
        nested = map_tensors(self._torch, arguments, lambda tensor: tensor.new_empty(0))
        return _Parts(nested, sizes, is_split, autocast, modes, given, [])

    # Trying it out

    def _try(self, parts: _Parts, tensors: tuple[Any, ...]) -> None:
        """Once: the parts give what the whole gives, and a call leaves nothing behind. Nothing of it stays."""
        torch, module = self._torch, self._module
        before = SavedState(torch, module)
        tensors = tuple(tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in tensors)
        versions = [tensor._version for tensor in tensors]
        modes = [(part, part.training) for part in module.modules()]
        # Torch's own random numbers are the same in the second pass, others are not.
        look = WatchedCall(torch, module, torchs_too=False)
        try:
            result = self._call(parts, parts.of(torch, tensors)[0])
            self._is_trained = [tensor.requires_grad for tensor in tensors_of(torch, result)]
            del result
            if (why := look.found()) is not None:
                raise NotSplit(why)
            if [tensor._version for tensor in tensors] != versions:
                raise NotSplit(message("call.changes_arguments"))
            module.eval()
            with torch.no_grad():
                whole = self._results(parts, list(tensors), sum(parts.sizes))
                plain, pieces = self._plain_values(), []
                for item, size in zip(parts.of(torch, tensors), parts.sizes, strict=True):
                    pieces.append(self._results(parts, item, size))
                    if self._plain_values() != plain:
                        raise NotSplit(message("accumulate.whole_count"))
                self._compare(whole, [torch.cat(item) for item in zip(*pieces, strict=True)])
        finally:
            for part, training in modes:
                part.training = training
            before.restore()
            look.host.restore()

    def _compare(self, whole: list[Any], joined: list[Any]) -> None:
        for result, other in zip(whole, joined, strict=True):
            close = _CLOSE_HALF if result.element_size() < 4 else _CLOSE
            if result.shape != other.shape or not result.numel():
                raise NotSplit(message("accumulate.other_form"))
            size = max(float(result.double().abs().max()), 1e-6)
            if float((result.double() - other.double()).abs().max()) > close * size:
                raise NotSplit(message("accumulate.depends_on_batch"))

    def _plain_values(self) -> Any:
        """Of the last result, what is no tensor."""
        return form_of(self._torch, map_tensors(self._torch, self._nested, lambda _: None))

    def _call(self, parts: _Parts, tensors: list[Any]) -> Any:
        args, kwargs = fill_tensors(self._torch, parts.arguments, tensors)
        self._is_busy = True
        try:
            # Casts that are made without gradients must not be found again by calls with them.
            with parts.autocast():
                return self._module(*args, **kwargs)
        finally:
            self._is_busy = False

    def _results(self, parts: _Parts, tensors: list[Any], size: int) -> list[Any]:
        nested = self._call(parts, tensors)
        results = list(tensors_of(self._torch, nested))
        if not results:
            raise NotSplit(message("accumulate.no_tensors"))
        if any(not result.dim() or result.shape[0] != size for result in results):
            raise NotSplit(message("accumulate.whole_mean"))
        self._nested = nested
        return results

    # The two passes

    def forward(self, parts: _Parts, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
        torch, pieces = self._torch, []
        device = next(iter(self._parameters.values())).device
        for piece, size in zip(parts.of(torch, tensors), parts.sizes, strict=True):
            parts.random.append(RandomNumbers(torch, device))
            pieces.append(self._results(parts, piece, size))
        # No tensor of the results is kept alive by how they were nested.
        self._nested = map_tensors(torch, self._nested, lambda tensor: tensor.new_empty(0))
        if "batches" not in self._site.live:
            self._site.tell(modules=type(self._module).__name__, batches=" + ".join(map(str, parts.sizes)))
        return tuple(torch.cat(item) for item in zip(*pieces, strict=True))

    def without_gradients(self, results: tuple[Any, ...]) -> list[Any]:
        return [result for result, is_trained in zip(results, self._is_trained, strict=True) if not is_trained]

    def tensors_before_a_change(self, parts: _Parts) -> tuple[Any, ...] | None:
        """Where the script has written into them since its first call."""
        given, parts.given = parts.given, None
        then = given.then if given is not None and given.is_changed else None
        if then is None:
            return None
        self._site.refuse(
            message("accumulate.cannot_split", module=type(self._module).__name__, why=message("accumulate.changed"))
        )
        return tuple(then)

    def backward(self, parts: _Parts, tensors: tuple[Any, ...], gradients: tuple[Any, ...]) -> list[Any]:
        torch = self._torch
        seeds = [None if gradient is None else gradient.split(parts.sizes) for gradient in gradients]
        of_inputs: list[list[Any]] = [[] for _ in tensors]
        of_weights: list[Any] = [None] * len(self._parameters)
        before = RandomNumbers(torch, next(iter(self._parameters.values())).device)
        try:
            for number, item in enumerate(parts.of(torch, tensors)):
                given = [None if seed is None else seed[number] for seed in seeds]
                found = self._gradients(parts, number, item, given)
                for place, gradient in zip(of_inputs, found[: len(tensors)], strict=True):
                    place.append(gradient)
                of_weights = [_sum(old, new) for old, new in zip(of_weights, found[len(tensors) :], strict=True)]
        finally:
            before.restore()
        joined = zip(of_inputs, parts.is_split, strict=True)
        return [*(_joined(torch, item, split) for item, split in joined), *of_weights]

    def _gradients(self, parts: _Parts, number: int, tensors: list[Any], seeds: list[Any]) -> list[Any]:
        torch, with_graph = self._torch, self._torch.is_grad_enabled()
        leaves = self._parameters
        if not with_graph:
            tensors = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors]
            # Hooks on the weights are for the sum, which the script's own pass brings them.
            leaves = {name: value.detach().requires_grad_(value.requires_grad) for name, value in leaves.items()}
        # Running statistics have had this part already.
        buffers = {name: item.clone() for name, item in self._module.named_buffers()}
        args, kwargs = fill_tensors(torch, parts.arguments, tensors)
        parts.random[number].restore()
        self._is_busy = True
        try:
            with torch.enable_grad(), parts.autocast(), parts.modes:
                result = torch.func.functional_call(self._module, {**leaves, **buffers}, args, kwargs)
        finally:
            self._is_busy = False
        ends = zip(tensors_of(torch, result), seeds, strict=True)
        return gradients_of(torch, ends, [*tensors, *leaves.values()], with_graph)


def _sum(old: Any, new: Any) -> Any:
    if old is None or new is None:
        return new if old is None else old
    # Not in place: autograd may hand out one tensor for two.
    return old + new


def _joined(torch: Any, gradients: list[Any], is_split: bool) -> Any:
    if all(gradient is None for gradient in gradients):
        return None
    if is_split:
        return torch.cat(gradients)
    total = None
    for gradient in gradients:
        total = _sum(total, gradient)
    return total


def _node(torch: Any, call: MicroBatchedCall) -> Any:
    class InParts(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, parts: _Parts, *tensors: Any) -> tuple[Any, ...]:
            given = tensors[: len(parts.is_split)]
            ctx.parts = parts
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(*given)
            results = call.forward(parts, given)
            ctx.mark_non_differentiable(*call.without_gradients(results))
            return results

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
            # What was written into since and is not kept is torch's to complain of.
            tensors = call.tensors_before_a_change(ctx.parts) or ctx.saved_tensors
            return (None, *call.backward(ctx.parts, tensors, gradients))

    return InParts

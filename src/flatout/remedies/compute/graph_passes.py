"""Forward and backward of a module as two recorded calls, and one node in the script's autograd graph.

Results and gradients are copied out of the recorded memory: a script may keep them, or add gradients up, while the
next replay writes over it. A backward pass for which the recorded one does not stand (a second one over the same
graph, one that is differentiated itself, one that begins at some of the results only) runs the forward pass again,
operation by operation, with the random numbers it had.
"""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ...feed.reasons import Reasoned
from ...records.message import Message, message
from ..model.module_calls import SavedState
from ..model.repeated_calls import Modes, current_autocast, fill_tensors, form_of, gradients_of, map_tensors, tensors_of
from ..model.roots import graph_nodes

_WARM_UPS = 3
# Of what the activations take: they stay for good, beside those of calls that are not replayed.
_ROOM = 3
_CLOSE, _CLOSE_HALF = 1e-3, 5e-2


@dataclass(eq=False, slots=True, weakref_slot=True)
class Ticket:
    """One replayed forward pass. It lives as long as the script holds its graph."""

    random: Any
    is_used: bool = False


class PlainCalls:
    """A context in which calls of modules are made as ever: those of one that is recorded, and of others within it."""

    _depth = 0

    def __enter__(self) -> None:
        PlainCalls._depth += 1

    def __exit__(self, *_: object) -> None:
        PlainCalls._depth -= 1

    @classmethod
    def is_asked_for(cls) -> bool:
        return cls._depth > 0


class Passes:
    """Of one module, for calls of one form."""

    def __init__(self, torch: Any, module: Any, tapes: CudaTapes, arguments: Any) -> None:
        self._torch = torch
        self._module = module
        self._tapes = tapes
        self._autocast = current_autocast(torch, next(module.parameters()).device.type)
        self._modes = Modes(module)
        self.inputs = [tensor.detach().clone() for tensor in tensors_of(torch, arguments)]
        for static, given in zip(self.inputs, tensors_of(torch, arguments), strict=True):
            static.requires_grad_(given.requires_grad)
        self._arguments = fill_tensors(torch, arguments, self.inputs)
        self._parameters = dict(module.named_parameters())
        # Leaves of their own on the same memory: the module's may belong to graphs of earlier steps and their streams.
        self._leaves = {
            name: value.detach().requires_grad_(value.requires_grad) for name, value in self._parameters.items()
        }
        self._open: Callable[[], Ticket | None] = lambda: None
        self.fallbacks = 0
        self._record()
        self._apply = _node(torch, self).apply

    def call(self, arguments: Any) -> Any:
        ticket = Ticket(self._tapes.random_state() if self._draws else None)
        self._open = weakref.ref(ticket)
        given = tuple(tensors_of(self._torch, arguments))
        results = self._apply(ticket, *given, *self._parameters.values())
        return self._rebuilt(results)

    @property
    def is_open(self) -> bool:
        """Whether a graph of the script still needs the recorded memory."""
        ticket = self._open()
        return ticket is not None and not ticket.is_used

    # Recording

    def _record(self) -> None:
        torch, tapes = self._torch, self._tapes
        before = tapes.random_state()
        with tapes.aside():
            for number in range(_WARM_UPS):
                held, versions = tapes.held_bytes(), [tensor._version for tensor in self.inputs]
                ends = [tensor for tensor in self._unique(self._plain_call()) if tensor.requires_grad]
                if [tensor._version for tensor in self.inputs] != versions:
                    raise NotRecorded(message("call.changes_arguments"))
                if number == 0:
                    self._check(ends, tapes.held_bytes() - held)
                self._gradients(ends, map(torch.ones_like, ends))
                del ends
        self._draws = tapes.random_state() != before
        result, self._forward = tapes.record(self._plain_call)
        unique = self._unique(result)
        place_of = {id(tensor): place for place, tensor in enumerate(unique)}
        self._places = [place_of[id(output)] for output in tensors_of(torch, result)]
        # Which of the results have gradients.
        self.is_trained = [tensor.requires_grad for tensor in unique]
        ends = [tensor for tensor in unique if tensor.requires_grad]
        self._seeds = [torch.zeros_like(tensor) for tensor in ends]
        found, self._backward = tapes.record(lambda: self._gradients(ends, self._seeds))
        self._outputs = [tensor.detach() for tensor in unique]
        self._result = map_tensors(torch, result, lambda tensor: tensor.detach())
        if all(item is None for item in found):
            raise NotRecorded(message("graphs.no_gradient"))
        if any(item is not None and item.layout is not torch.strided for item in found):
            raise NotRecorded(message("graphs.sparse"))
        self._found = found

    def _check(self, ends: list[Any], held_bytes: int) -> None:
        if not ends:
            raise NotRecorded(message("graphs.no_gradient"))
        own = {id(tensor) for tensor in (*self.inputs, *self._leaves.values())}
        nodes = graph_nodes([tensor.grad_fn for tensor in ends if tensor.grad_fn is not None])
        if any(id(node.variable) not in own for node in nodes if hasattr(node, "variable")):
            raise NotRecorded(message("graphs.other_tensors"))
        room = self._tapes.room_bytes()
        if room < _ROOM * held_bytes:
            raise NotRecorded(message("graphs.no_room", held_mib=held_bytes >> 20, free_mib=room >> 20))

    def _plain_call(self) -> Any:
        args, kwargs = self._arguments
        # Casts kept from before belong to memory that is not the graph's.
        self._torch.clear_autocast_cache()
        with self._autocast():
            return self._torch.func.functional_call(self._module, self._leaves, args, kwargs)

    def _unique(self, result: Any) -> list[Any]:
        """Its tensors; one that stands in two places once."""
        return list({id(tensor): tensor for tensor in tensors_of(self._torch, result)}.values())

    def _gradients(self, ends: Iterable[Any], seeds: Iterable[Any]) -> list[Any]:
        """One for each input and each weight, None where it has none."""
        everything = (*self.inputs, *self._leaves.values())
        return gradients_of(self._torch, zip(ends, seeds, strict=True), everything)

    # Replaying

    def _fill(self, given: tuple[Any, ...]) -> None:
        with self._torch.no_grad():
            for static, tensor in zip(self.inputs, given, strict=True):
                static.copy_(tensor)

    def forward(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        self._fill(given)
        self._forward()
        return tuple(output.clone() for output in self._outputs)

    def stands_for(self, ticket: Ticket, gradients: tuple[Any, ...]) -> bool:
        """Whether the recorded backward pass is the one that is asked for."""
        if ticket.is_used or self._open() is not ticket or self._torch.is_grad_enabled():
            return False
        given = zip(gradients, self.is_trained, strict=True)
        return all(item is not None for item, is_trained in given if is_trained)

    def backward(self, ticket: Ticket, gradients: tuple[Any, ...]) -> list[Any]:
        torch = self._torch
        given = zip(gradients, self.is_trained, strict=True)
        for seed, entry in zip(self._seeds, [item for item, is_trained in given if is_trained], strict=True):
            seed.copy_(entry)
        self._backward()
        ticket.is_used = True
        found = [item for item in self._found if item is not None]
        fresh = [torch.empty_like(item) for item in found]
        torch._foreach_copy_(fresh, found)
        following = iter(fresh)
        return [None if item is None else next(following) for item in self._found]

    def backward_again(self, ticket: Ticket, given: tuple[Any, ...], gradients: tuple[Any, ...]) -> list[Any]:
        """The same without a recording."""
        torch = self._torch
        self.fallbacks += 1
        ticket.is_used = True
        with_graph = torch.is_grad_enabled()
        if not with_graph:
            given = tuple(tensor.detach().requires_grad_(tensor.requires_grad) for tensor in given)
        ends = zip(self._unique(self._call_again(ticket, given)), gradients, strict=True)
        return gradients_of(torch, ends, (*given, *self._parameters.values()), with_graph)

    def _call_again(self, ticket: Ticket, given: tuple[Any, ...]) -> Any:
        torch, tapes = self._torch, self._tapes
        args, kwargs = fill_tensors(torch, self._arguments, list(given))
        # Running statistics have had this batch already.
        buffers = {name: item.clone() for name, item in self._module.named_buffers()}
        before = tapes.random_state()
        if ticket.random is not None:
            tapes.set_random_state(ticket.random)
        try:
            with torch.enable_grad(), self._autocast(), self._modes, PlainCalls():
                return torch.func.functional_call(self._module, buffers, args, kwargs)
        finally:
            tapes.set_random_state(before)

    def _rebuilt(self, results: tuple[Any, ...]) -> Any:
        places = iter(self._places)
        return map_tensors(self._torch, self._result, lambda _: results[next(places)])

    # Proving

    def differs(self, arguments: Any, backward: bool) -> tuple[Message | None, bool]:
        """What a replay gives otherwise than the call itself (None: nothing), and whether all bits are the same.

        Random numbers and buffers are afterwards as they were before.
        """
        torch, before = self._torch, SavedState(self._torch, self._module)
        try:
            plain = self._tensors_of_call(arguments, backward)
            before.restore()
            with torch.no_grad():
                replayed = self._tensors_of_replay(arguments, backward)
            far = _far(torch, replayed, plain)
            same = all(torch.equal(item, other) for item, other in zip(replayed, plain, strict=True))
        except NotRecorded as error:
            return message("graphs.replay_fails", text=error.why), False
        except (ValueError, RuntimeError) as error:
            return message("graphs.replay_fails", text=str(error)), False
        finally:
            before.restore()
        return (message("graphs.replay_differs", tolerances=far) if far > 1 else None), same

    def _tensors_of_call(self, arguments: Any, backward: bool) -> list[Any]:
        torch = self._torch
        if backward:
            self._fill(tuple(tensors_of(torch, arguments)))
            result = self._plain_call()
        else:
            args, kwargs = arguments
            with torch.no_grad():
                result = self._module._call_impl(*args, **kwargs)
        if self._plain_values(result) != self._plain_values(self._result):
            raise NotRecorded(message("graphs.values_change"))
        found = self._unique(result)
        if backward:
            gradients = self._gradients(found, list(map(torch.ones_like, found)))
            found += [gradient for gradient in gradients if gradient is not None]
        return [item.detach().clone() for item in (*found, *self._module.buffers())]

    def _plain_values(self, result: Any) -> Any:
        return form_of(self._torch, map_tensors(self._torch, result, lambda _: None))

    def _tensors_of_replay(self, arguments: Any, backward: bool) -> list[Any]:
        torch = self._torch
        found = list(self.forward(tuple(tensors_of(torch, arguments))))
        if backward:
            results = zip(self._outputs, self.is_trained, strict=True)
            seeds = tuple(torch.ones_like(item) if is_trained else None for item, is_trained in results)
            found += [item for item in self.backward(Ticket(None), seeds) if item is not None]
        return [*found, *(buffer.detach().clone() for buffer in self._module.buffers())]


def _far(torch: Any, results: list[Any], others: list[Any]) -> float:
    """How far results are apart, in tolerances; rounding alone stays below 1."""
    sizes = [float(other.double().nan_to_num().abs().max()) if other.numel() else 0.0 for other in others]
    # A gradient that is nothing but rounding, of a bias before a normalisation, may be any such.
    least, far = 0.01 * max(sizes, default=0.0), 0.0
    for item, other, size in zip(results, others, sizes, strict=True):
        if not (item.is_floating_point() or item.is_complex()):
            far = max(far, 0.0 if torch.equal(item, other) else 2.0)
        elif item.numel():
            close = _CLOSE_HALF if item.dtype in (torch.float16, torch.bfloat16) else _CLOSE
            apart = (item.double().nan_to_num() - other.double().nan_to_num()).abs().max()
            far = max(far, float(apart) / max(size, least, 1e-12) / close)
    return far


def _node(torch: Any, passes: Passes) -> Any:
    class Replayed(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, ticket: Ticket, *tensors: Any) -> tuple[Any, ...]:
            given = tensors[: len(passes.inputs)]
            ctx.ticket = ticket
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(*given)
            results = passes.forward(given)
            plain = [result for result, is_trained in zip(results, passes.is_trained, strict=True) if not is_trained]
            ctx.mark_non_differentiable(*plain)
            return results

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
            if passes.stands_for(ctx.ticket, gradients):
                return (None, *passes.backward(ctx.ticket, gradients))
            return (None, *passes.backward_again(ctx.ticket, ctx.saved_tensors, gradients))

    return Replayed


# Recording on the GPU. Only this thread is held to the rules of a capture, so a thread that pins batches goes on. A
# capture that breaks leaves torch's allocator and random generator in capture mode; both are reset, or the next
# dropout of the training would fail.

_WAITS = "synchronizing CUDA operation"
# Broken ones are kept: torch's allocators may still ask them whose memory it is.
_broken: list[Any] = []


class NotRecorded(Reasoned):
    """The call cannot be recorded; the words say why."""


class CudaTapes:
    def __init__(self, torch: Any, device: Any) -> None:
        self._torch = torch
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)

    def aside(self) -> Any:
        """A context beside the script's own work, for trying calls out. Raises NotRecorded if the host waited in it."""
        return _Aside(self._torch.cuda, self._device, self._stream)

    def record(self, call: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        """The call's result in memory of its own, and what does its work again, into the same memory."""
        cuda = self._torch.cuda
        graph = cuda.CUDAGraph()
        # Garbage with device memory in it must not be collected in the middle of a capture.
        gc.collect()
        collects = gc.isenabled()
        gc.disable()
        try:
            cuda.synchronize(self._device)
            # What was tried out has left its memory with another stream.
            cuda.empty_cache()
            with cuda.stream(self._stream):
                result = self._capture(graph, call)
            cuda.synchronize(self._device)
        finally:
            if collects:
                gc.enable()
        return result, graph.replay

    def _capture(self, graph: Any, call: Callable[[], Any]) -> Any:
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        try:
            result = call()
            graph.capture_end()
        except BaseException:
            self._recover(graph)
            raise
        return result

    def _recover(self, graph: Any) -> None:
        _broken.append(graph)
        for mend in (graph.capture_end, self._end_allocation, graph.reset, self._capture_something):
            try:
                mend()  # the first raises where the capture is broken, the second where it is not
            except Exception:
                continue
        self._torch.cuda.empty_cache()

    def _end_allocation(self) -> None:
        """A capture that did not end keeps the allocator at its pool, and the pool's memory."""
        bindings, index = self._torch._C, self._device.index
        name = "_cuda_endAllocateToPool"
        end = getattr(bindings, name, None) or bindings._cuda_endAllocateCurrentStreamToPool
        end(index, self._pool)
        bindings._cuda_releasePool(index, self._pool)

    def _capture_something(self) -> None:
        """The generator believes it is in a capture until one has ended well."""
        torch = self._torch
        torch.cuda.synchronize(self._device)
        number = torch.zeros(1, device=self._device)
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        number.add_(1)
        graph.capture_end()

    def random_state(self) -> Any:
        return self._torch.cuda._get_rng_state_offset(self._device)

    def set_random_state(self, state: Any) -> None:
        self._torch.cuda._set_rng_state_offset(state, self._device)

    def held_bytes(self) -> int:
        """By tensors that live now."""
        return int(self._torch.cuda.memory_allocated(self._device))

    def room_bytes(self) -> int:
        cuda = self._torch.cuda
        free, _ = cuda.mem_get_info(self._device)
        return int(free + cuda.memory_reserved(self._device) - cuda.memory_allocated(self._device))

    def place(self) -> object:
        """Where work is launched just now: replays keep to one stream."""
        return self._torch.cuda.current_stream(self._device).cuda_stream


class _Aside:
    """Work on another stream, with an eye on waits.

    No generator: remedies that look who enters a stream would take contextlib's frame for the script's.
    """

    def __init__(self, cuda: Any, device: Any, stream: Any) -> None:
        self._cuda = cuda
        self._device = device
        self._stream = stream
        self._within = cuda.stream(stream)
        self._warnings = warnings.catch_warnings(record=True)

    def __enter__(self) -> None:
        cuda = self._cuda
        self._before = cuda.get_sync_debug_mode()
        self._current = cuda.current_stream(self._device)
        self._stream.wait_stream(self._current)
        self._seen = self._warnings.__enter__()
        warnings.simplefilter("always")
        # It warns rather than fails: other threads may well wait.
        cuda.set_sync_debug_mode("warn")
        self._within.__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._within.__exit__(kind, error, trace)
        self._cuda.set_sync_debug_mode(self._before)
        self._warnings.__exit__(kind, error, trace)
        self._current.wait_stream(self._stream)
        if error is None and any(_WAITS in str(entry.message) for entry in self._seen or ()):
            raise NotRecorded(message("graphs.host_waits"))

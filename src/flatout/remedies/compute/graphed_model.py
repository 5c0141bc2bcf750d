"""Replays the forward and the backward pass of a small model as CUDA graphs: one launch each for hundreds.

The steps before are timed. Then calls of equal form are watched; if they draw no random numbers on the host and leave
nothing behind on the model, both passes are recorded and a replay is compared with the call itself, results, gradients
and buffers. From then on training calls of this form are replayed: dropout draws the numbers it would have drawn,
running statistics move as before, results and gradients are copies that a script may keep. Everything else goes
operation by operation: evaluation, calls without gradients, other shapes, a second call before the first was
differentiated. At every call it is checked that nothing changed that the recording takes for granted (values on the
modules and among globals, weights frozen, replaced or moved, hooks); what stays changed ends it. Replays are compared
with the call itself now and then, and a model that is not quicker so goes back.

The same kernels run; memory for their workspaces and, under autocast, casts of weights that are used twice may differ:
other rounding at most. The record says whether the first replay was identical.

Refused on a CPU, for compiled, scripted or wrapped models and several processes, with hooks, parametrized, recurrent or
sparse layers, results that are not tensors in plain containers, too little free memory, and where the host waits for
the device within the model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from threading import get_ident
from typing import Any

from ...feed.reasons import error_text
from ...records.message import Message, message
from ..answers import Answer, Report, has_finding, no, ran_on_gpu, share_of_training, torch_state, yes
from ..model.module_calls import SavedState, check_hooks, has_gradient_hook, replace_call
from ..model.repeated_calls import ModelSnapshot, NotPlain, WatchedCall, form_of, tensors_of
from ..model.roots import Root, find_roots
from ..site import Refused, Site
from ..traits import Bottleneck, Traits, WarmUp
from .graph_passes import CudaTapes, NotRecorded, Passes, PlainCalls
from .worth import Worth

ID = "graphs.model"
TITLE = "Forward and backward replayed as CUDA graphs"
SAFETY = "numeric"
# They are timed in blocks before and after, which are shorter where steps are slow.
TRAITS = Traits(Bottleneck.LAUNCHING, can_rest=True, records_operations=True, warm_up=WarmUp(80, slow_steps=40))
CONFLICTS = ("compile.model", "memory.checkpointing")
ANSWERS = ("HO401",)
_MOSTLY, _BUSY, _AT_WORK, _DRY = 0.7, 0.8, 0.5, 0.6


def applies(report: Report) -> Answer:
    if not ran_on_gpu(report):
        return no(message("graphs.on_cpu"))
    if torch_state(report).get("compiled"):
        return no(message("graphs.script_compiles"))
    if report.run.ranks > 1:
        return no(message("graphs.ranks"))
    if has_finding(report, "CO507"):
        return no(message("graphs.shapes_change"))
    if has_finding(report, "HO401"):
        return yes(True, message("launches.gpu_waits"))
    if _hold_each_other_up(report):
        return yes(True, message("graphs.both_wait"))
    return no(message("launches.no_wait"))


def _hold_each_other_up(report: Report) -> bool:
    """Neither binds alone: what either is late by, the other waits. No finding, for what it gains cannot be told."""
    gpu = report.gpu
    if gpu is None or gpu.busy_share is None or gpu.sm_active is None:
        return False
    launches = share_of_training(report, "forward", "backward", "optimizer") > _MOSTLY
    # Large kernels keep it at work; found with nothing to do at most launches it waits all the same.
    waits = gpu.sm_active < _AT_WORK or (gpu.drained_share or 0.0) > _DRY
    return gpu.busy_share < _BUSY and waits and launches


def apply(site: Site, value: Any) -> None:
    find_roots(site, lambda roots: _measure_then_record(site, roots))


def _measure_then_record(site: Site, roots: list[Root]) -> None:
    trained = [root for root in roots if root.with_grad]
    if not trained:
        raise Refused(message("graphs.nothing_trained"))
    for root in trained:
        check_root(site.torch, root)
    site.tell(modules=[root.name for root in trained], since_step=None)

    def begin() -> Sequence[GraphedCall]:
        calls = []
        for root in trained:
            device = next(root.module.parameters()).device
            call = GraphedCall(site, root.module, CudaTapes(site.torch, device))
            replace_call(site, root.module, call)
            calls.append(call)
        site.tell(since_step=site.step)
        return calls

    on_device = any(root.device_type == "cuda" for root in trained)
    site.each_step(GraphsWorth(site, begin, on_device).step)


def check_root(torch: Any, root: Root) -> None:
    """Raises Refused for a model that cannot be recorded right."""
    module, name = root.module, root.name
    if root.is_compiled:
        raise Refused(message("model.script_compiles"))
    if module is not root.inner or type(module).__name__.startswith(("FullySharded", "FSDP")):
        raise Refused(message("model.exchanges_gradients", module=type(module).__name__))
    if root.device_type != "cuda":
        raise Refused(message("graphs.other_device", module=name, device=root.device_type))
    check_module(torch, module)
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        raise Refused(message("graphs.distributed"))


def check_module(torch: Any, module: Any) -> None:
    """The part of it that asks no device."""
    check_hooks(torch, module)
    if len({parameter.device for parameter in (*module.parameters(), *module.buffers())}) > 1:
        raise Refused(message("graphs.several_devices"))
    if any(buffer.requires_grad for buffer in module.buffers()):
        raise Refused(message("graphs.trained_buffers"))
    for part in module.modules():
        name = type(part).__name__
        if hasattr(part, "parametrizations"):
            raise Refused(message("graphs.parametrized", module=name))
        if isinstance(part, torch.nn.RNNBase):
            raise Refused(message("graphs.recurrent", module=name))
        if getattr(part, "sparse", False) is True:
            raise Refused(message("model.sparse", module=name))
        if part is not module and part._compiled_call_impl is not None:
            raise Refused(message("graphs.part_compiled", module=name))
        if has_gradient_hook(part):
            raise Refused(message("graphs.parameter_hook", module=name))


# Is it faster? Steps are timed before and after.

_SETTLED = 5
_LONGEST_UNRECORDED = 60


class GraphsWorth(Worth):
    """Settled some steps after all calls were recorded; whether they are still replayed, they see for themselves."""

    slower = "graphs.slower"
    shortens_blocks = True

    def _change(self) -> None:
        self._calls: Sequence[GraphedCall] = self._begin()
        self._left = _LONGEST_UNRECORDED
        self._is_recorded = False

    def _settle(self, number: int) -> None:
        self._left -= 1
        if not self._is_recorded and all(call.is_recorded for call in self._calls):
            self._is_recorded, self._left = True, _SETTLED
        elif self._left == 0 and self._is_recorded:
            self._time_anew()
            self._stage = self._time_after
        elif self._left == 0:
            why = next((call.why_not for call in self._calls if call.why_not), message("graphs.not_called"))
            self._site.give_up(message("graphs.nothing_recorded", steps=_LONGEST_UNRECORDED, why=why))


# The module's call: replayed where a recording matches, and made as usual otherwise. Calls of the same form are
# watched before one is recorded: one that draws random numbers on the host, or changes the module, cannot be
# replayed.

_WATCHED_CALLS = 3
# Of the last so many calls in training, a quarter at least has to be replayed.
_CALLS_IN_MIND = 60
_MOST_FALLBACKS = 3
# So many calls in a row at which something was no longer so are no exception any more.
_MOST_CHANGED = 3
# Replays that are compared with the call itself.
_LOOKS, _LOOK_EVERY = (20, 200), 2000


class GraphedCall:
    def __init__(self, site: Site, module: Any, tapes: CudaTapes) -> None:
        self._site = site
        self._torch = site.torch
        self._module = module
        self._tapes = tapes
        self._thread = get_ident()
        self._device = next(module.parameters()).device.type
        self._form: object = None
        self._watched = 0
        self._passes: Passes | None = None
        self._fixed: ModelSnapshot | None = None
        self._changed_calls = 0
        self._replayed: deque[bool] = deque(maxlen=_CALLS_IN_MIND)
        # Why the last call was not replayed; None if it was.
        self.why_not: Message | None = None
        self.replays = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._is_for_us():
            return self._module._call_impl(*args, **kwargs)
        form = self._form_of(args, kwargs)
        if self._passes is None:
            return self._watch(form, args, kwargs)
        self.why_not = self._why_plain(form, self._passes)
        self._replayed.append(not self.why_not)
        if self.why_not:
            self._give_up_if_seldom()
            return self._module._call_impl(*args, **kwargs)
        self.replays += 1
        if self.replays in _LOOKS or self.replays % _LOOK_EVERY == 0:
            self._compare((args, kwargs))
            if not self._site.in_force:
                return self._module._call_impl(*args, **kwargs)
        return self._passes.call((args, kwargs))

    @property
    def is_recorded(self) -> bool:
        return self._passes is not None

    def _is_for_us(self) -> bool:
        torch = self._torch
        return bool(
            self._site.in_force
            and not PlainCalls.is_asked_for()
            and self._module.training
            and torch.is_grad_enabled()
            and not torch.is_inference_mode_enabled()
            and not torch.is_anomaly_enabled()
            and not torch.compiler.is_dynamo_compiling()
            and torch._C._get_tracing_state() is None
            and not self._packs_saved_tensors()
            and not self._is_transformed()
            and get_ident() == self._thread
            and not (self._device == "cuda" and torch.cuda.is_current_stream_capturing())
        )

    def _packs_saved_tensors(self) -> bool:
        """Around a checkpoint, or with activations on the host, a call has to save what it saved."""
        top = getattr(self._torch._C._autograd, "_top_saved_tensors_default_hooks", None)
        return top is not None and top(False) is not None

    def _is_transformed(self) -> bool:
        """Operations are counted, traced or differentiated by somebody: each has to be seen."""
        c = self._torch._C
        dispatching = getattr(c, "_len_torch_dispatch_stack", int)
        transforming = getattr(getattr(c, "_functorch", None), "peek_interpreter_stack", lambda: None)
        return bool(dispatching()) or transforming() is not None

    def _form_of(self, args: Any, kwargs: Any) -> object:
        torch, device = self._torch, self._device
        autocast = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device)
        return (form_of(torch, (args, kwargs)), autocast, self._tapes.place())

    def _why_plain(self, form: object, passes: Passes) -> Message | None:
        """Why this call is not replayed; None if it is."""
        if form != self._form:
            return message("graphs.other_form")
        if passes.is_open:
            return message("graphs.open")
        assert self._fixed is not None
        changed = self._fixed.changed()
        self._changed_calls = self._changed_calls + 1 if changed else 0
        if passes.fallbacks >= _MOST_FALLBACKS:
            return message("graphs.differentiated_again")
        return changed

    def _give_up_if_seldom(self) -> None:
        passes, seldom = self._passes, 4 * sum(self._replayed) < _CALLS_IN_MIND
        spent = passes is not None and passes.fallbacks >= _MOST_FALLBACKS
        if self._changed_calls >= _MOST_CHANGED or spent or (len(self._replayed) == _CALLS_IN_MIND and seldom):
            self._site.give_up(message("graphs.cannot_replay", module=type(self._module).__name__, why=self.why_not))

    def _watch(self, form: object, args: Any, kwargs: Any) -> Any:
        self._watched = self._watched + 1 if form == self._form else 0
        self._form = form
        self._replayed.append(False)
        if self._watched == 0:
            self.why_not = message("graphs.forms_change")
            self._give_up_if_seldom()
        if self._watched <= _WATCHED_CALLS:
            return self._watched_call(args, kwargs)
        if self._record((args, kwargs)):
            assert self._passes is not None
            self.replays += 1
            return self._passes.call((args, kwargs))
        return self._module._call_impl(*args, **kwargs)

    def _watched_call(self, args: Any, kwargs: Any) -> Any:
        look = self._site.guarded(lambda: WatchedCall(self._torch, self._module, self._device != "cpu"))
        result = self._module._call_impl(*args, **kwargs)
        why = self._site.guarded(look.found) if look is not None else None
        if why is not None:
            self._site.refuse(message("graphs.cannot_replay", module=type(self._module).__name__, why=why))
        return result

    def _record(self, arguments: Any) -> bool:
        """Record both passes; where that fails all is as it was, and told."""
        name, before = type(self._module).__name__, SavedState(self._torch, self._module)
        try:
            with PlainCalls():
                is_identical = self._record_and_compare(arguments, before)
        except (NotRecorded, NotPlain) as error:
            self._site.refuse(message("graphs.cannot_record", module=name, why=error.why))
            return False
        except Exception as error:
            self._site.give_up(message("graphs.recording_failed", module=name, error=error_text(error)))
            return False
        finally:
            before.restore()
        self._site.tell(recorded_at_step=self._site.step, first_replay="identical" if is_identical else "close")
        return True

    def _record_and_compare(self, arguments: Any, before: SavedState) -> bool:
        """Whether the first replay was identical."""
        torch = self._torch
        for tensor in tensors_of(torch, arguments):
            if tensor.device.type != self._device:
                raise NotRecorded(message("graphs.other_device_tensor", device=tensor.device.type))
        fixed = ModelSnapshot(torch, self._module)
        passes = Passes(torch, self._module, self._tapes, arguments)
        before.restore()
        differs, is_identical = passes.differs(arguments, backward=True)
        if differs is not None:
            raise NotRecorded(differs)
        self._passes, self._fixed = passes, fixed
        return is_identical

    def _compare(self, arguments: Any) -> None:
        """A branch of Python that goes another way by now shows here."""
        assert self._passes is not None
        with PlainCalls():
            differs, _ = self._passes.differs(arguments, backward=False)
        self._site.tell(compared_replays=self.replays)
        if differs is not None:
            self._site.give_up(message("graphs.differs", module=type(self._module).__name__, why=differs))

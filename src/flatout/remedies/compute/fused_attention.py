"""Attention that is written by hand runs as one kernel: `scaled_dot_product_attention`, in eager mode.

In a step that is looked at, the functions of torch that the model calls are followed: a product, whatever scales and
masks it, a softmax, perhaps dropout, and a second product, with nothing else done with what lies between. From then on,
in the smallest module around it, such a chain is not computed operation by operation: its steps are noted, and at its
end the fused kernel gets queries, keys, values and mask as they are in this call. Where the script does something else
with scores or weights, they are computed as it has it. Nothing is compiled, and no branch is frozen: a mask that
changes is passed as a mask, and only one that is made of the module's own buffers and constants is looked at once,
whether it is the causal triangle.

Before the kernel is used, and now and then later on, both are run on the script's own tensors, forward and backward,
and a part in float64: the kernel may be off by a few times what the script's own form is off by. Other rounding, the
same training; dropout within the attention draws other numbers. Then it has to show its worth: steps before and after
are timed, and what is not quicker is put back.

With `compile.model` both take part: graphs end before such a module and begin again behind it. Refused where the script
compiles (the compiler looks for such chains itself), asks for deterministic algorithms or differentiates gradients
again, and where nothing is left to replace: weights that are returned, kept or read elsewhere.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import get_ident
from typing import Any

from ...feed.reasons import error_text
from ...records.message import Message, message
from ..answers import Answer, Report, has_finding, no, torch_state, yes
from ..model.attention_call import Attention, Call, make_call
from ..model.attention_masks import Masks, Origins, Unfit
from ..model.attention_tracing import Deferring, Watched
from ..model.module_calls import FullSavedState, is_compiled, wrap_calls
from ..model.repeated_calls import map_tensors
from ..model.roots import Root, find_roots
from ..site import Refused, Site
from ..traits import Bottleneck, Traits, WarmUp
from .attention_proof import Proof, Sample, prove
from .worth import Worth, compilations

ID = "attention.fused"
TITLE = "Attention written by hand, as one kernel"
SAFETY = "numeric"
# It is timed in blocks before and after, which are shorter where steps are slow.
TRAITS = Traits(Bottleneck.DEVICE, can_rest=True, warm_up=WarmUp(80, slow_steps=40))
# What compiles the model from outside.
_COMPILES = "compile.model"
_LOOK_STEPS = 3
# Copies of the model, which this would not meet.
_WRAPPERS = ("DataParallel",)
# Where `create_graph` is among the arguments of these.
_DIFFERENTIATES = {"backward": 3, "grad": 4}


def applies(report: Report) -> Answer:
    if torch_state(report).get("compiled"):
        return no(message("attention.compiled"))
    if has_finding(report, "CO510"):
        return yes(True, message("attention.by_hand"))
    return no(message("attention.not_found"))


def apply(site: Site, value: Any) -> None:
    for name, at in _DIFFERENTIATES.items():
        site.before(site.torch.autograd, name, partial(_refuse_second_derivatives, site, at))
    find_roots(site, lambda roots: _look_then_fuse(site, roots))


def _refuse_second_derivatives(site: Site, at: int, *args: Any, **kwargs: Any) -> None:
    if kwargs.get("create_graph", args[at] if len(args) > at else False):
        site.refuse(message("attention.create_graph"))


def _look_then_fuse(site: Site, roots: list[Root]) -> None:
    for root in roots:
        if root.is_compiled or is_compiled(root.inner) or compilations():
            raise Refused(message("model.script_compiles"))
        if type(root.module).__name__ in _WRAPPERS:
            raise Refused(message("checkpointing.copies", module=type(root.module).__name__))
    if site.torch.are_deterministic_algorithms_enabled():
        raise Refused(message("cudnn.deterministic_asked"))
    fused = FusedAttentions(site)
    if site.values.get(_COMPILES):
        # It is there before the model is compiled, which is then timed as a whole.
        look = AttentionLook(site, lambda: fused.begin(look.owners, look.lines))
    else:
        look = AttentionLook(site, lambda: None)
        on_device = any(root.device_type == "cuda" for root in roots)
        worth = FusedWorth(site, lambda: fused.begin(look.owners, look.lines), on_device)
        site.each_step(worth.step)
    site.each_step(look.step)


class AttentionLook:
    """At some steps of training: in which modules attention is written by hand, and where it begins."""

    def __init__(self, site: Site, found: Callable[[], object] = lambda: None) -> None:
        self._site = site
        self._found = found
        self._kind = site.torch.nn.Module
        self._watched = Watched(site.torch)
        self._left = _LOOK_STEPS
        self._thread = get_ident()
        self._original: Any = None
        self._replacement: Any = None
        # Not kept alive by this.
        self.owners: list[weakref.ref[Any]] = []
        self.lines: set[tuple[Any, int]] = set()

    def begin(self) -> None:
        self._original = self._kind.__call__
        self._replacement = self._make_call()
        self._kind.__call__ = self._replacement
        self._site.undo(self.end)

    def end(self) -> None:
        # Where someone else has wrapped it since, theirs stays; ours then only passes through.
        if self._replacement is not None and self._kind.__call__ is self._replacement:
            self._kind.__call__ = self._original
        self._replacement = None

    def step(self, number: int) -> None:
        """Begins a step later than others ended theirs, who look at calls as well."""
        if self._original is None:
            self.begin()
            return
        if self._replacement is None:
            return
        if self._watched.error is not None:
            self._site.give_up(self._watched.error)
            return
        chains, self._left = self._watched.chains, self._left - 1
        found = [chain for chain in chains if chain.is_attention]
        if not found and self._left:
            return
        self.end()
        inside = [chain for chain in found if chain.modules]
        if inside:
            owners = {id(chain.modules[-1]): chain.modules[-1] for chain in inside}
            self.owners = [weakref.ref(module) for module in owners.values()]
            self.lines = {chain.line for chain in inside}
            self._found()
        elif found:
            self._site.refuse(message("attention.no_module"))
        else:
            self._site.refuse(message("attention.used" if chains else "attention.none"))
        self._watched = Watched(self._site.torch)

    def _make_call(self) -> Any:
        original, compiling = self._original, self._site.torch.compiler.is_dynamo_compiling

        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if compiling() or self._replacement is None or get_ident() != self._thread:
                return original(module, *args, **kwargs)
            running = self._watched.modules
            running.append(module)
            try:
                if len(running) > 1:
                    return original(module, *args, **kwargs)
                with self._watched.looking():
                    return original(module, *args, **kwargs)
            finally:
                running.pop()
                if not running:
                    self._watched.forget()

        return call


# Is it faster? Steps are timed before and after.

_SETTLED = 5


class FusedWorth(Worth):
    """Settled some steps after the last proof."""

    slower = "attention.slower"
    shortens_blocks = True

    def _change(self) -> None:
        self._fused: FusedAttentions = self._begin()
        self._left = _SETTLED

    def _settle(self, number: int) -> None:
        self._left = self._left - 1 if self._fused.is_calm else _SETTLED
        if self._left == 0:
            self._time_anew()
            self._stage = self._time_after


# The calls of modules in which attention is written by hand.

_FIRST_TRIES = 6
_MOST_KEPT = 3
# A thread that samples stacks may hold a frame, and all that it works on, for a moment.
_MOMENT_S, _MOMENTS = 0.002, 5
# Uses after which the next is proved again.
_AGAIN, _AGAIN_EVERY = (50, 500), 5000
# Steps without any, until it is said.
_MOST_WITHOUT = 40
# Ends a checkpointed part where all that is needed of it is there.
_STOPS_RECOMPUTING = "_StopRecomputationError"


@dataclass(slots=True)
class _Owner:
    """A module, and what is known of its calls. What changes in a step counts from its end on.

    What is computed again in backward has to be what was computed in forward.
    """

    first_tries: int = _FIRST_TRIES
    # Why it is called as it is, and why it will be.
    left_alone: Message | None = None
    leaving: Message | None = None
    # Calls in which something was put off that somebody has kept.
    kept: int = 0


class FusedAttentions:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._torch = site.torch
        self._origins = Origins(site.torch)
        self._masks = Masks(site.torch, self._origins)
        self._lines: set[tuple[Any, int]] = set()
        self._here = threading.local()
        self._owners: weakref.WeakKeyDictionary[Any, _Owner] = weakref.WeakKeyDictionary()
        # By their form; a sample is proved at the end of the step, when there is room.
        self._proofs: dict[Any, Proof] = {}
        self._samples: dict[Any, Sample] = {}
        self._uses = 0
        self._whys: list[Message] = []
        self._is_recorded = False
        self._fused = self._without = 0
        self.in_last_step = 0
        # Whether there are some, and the last step had nothing new to prove.
        self.is_calm = self._is_any = False

    def begin(self, owners: list[weakref.ref[Any]], lines: set[tuple[Any, int]]) -> FusedAttentions:
        self._lines = lines
        roots = [Root(reference, "") for reference in owners if reference() is not None]
        for module in (root.module for root in roots):
            self._owners[module] = _Owner()
            self._origins.add_fixed(module)
        # What a compiler would make of noting operations is not what they are noted for.
        wrap_calls(self._site, roots, self._run, is_for_compilers=not self._site.values.get(_COMPILES))
        self._site.tell(modules=sorted({root.name for root in roots}), since_step=self._site.step)
        self._site.each_step(self.step)
        return self

    @property
    def why_not(self) -> Message:
        return self._whys[0] if self._whys else message("attention.not_called")

    def step(self, number: int) -> None:
        """At the end of one, with nothing of its passes left in memory."""
        samples, self._samples = self._samples, {}
        for key, sample in samples.items():
            self._prove(key, sample)
        self._masks.forget_step()
        self.in_last_step, self._fused = self._fused, 0
        # Not every optimizer's step has some.
        self._is_any |= self.in_last_step > 0
        self.is_calm = self._is_any and not samples
        self._without = 0 if self.in_last_step else self._without + 1
        if self.in_last_step and not samples and "attentions" not in self._site.live:
            self._site.tell(attentions=self.in_last_step)
        for owner in self._owners.values():
            if owner.leaving is not None:
                owner.left_alone = owner.leaving
                self._note(owner.leaving)
        if all(owner.left_alone is not None for owner in self._owners.values()):
            self._site.refuse(self.why_not)
        elif self._without >= _MOST_WITHOUT:
            self._site.refuse(message("attention.nothing_fused", steps=self._without, why=self.why_not))

    def _prove(self, key: Any, sample: Sample) -> None:
        known = self._proofs.get(key)
        if not sample.attention.is_unchanged:
            self._note(message("attention.written_into"))
            return
        try:
            proof = prove(self._torch, sample, self._masks)
        except Exception as error:
            proof = Proof(message("attention.kernel_fails", error=error_text(error)), 0.0)
        if known is None:
            self._proofs[key] = proof
        elif proof.why_not is not None and proof.is_about_numbers:
            self._site.give_up(message("attention.differs", why=proof.why_not))
        if proof.why_not is None:
            times = max(found.times for found in self._proofs.values() if found.why_not is None)
            self._site.tell(error_times=round(times, 2))
        else:
            self._note(proof.why_not)

    def _note(self, why: Message) -> None:
        if why not in self._whys:
            self._whys.append(why)
            self._site.tell(left_alone=list(self._whys))

    def _run(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], onward: Callable[..., Any]) -> Any:
        owner = self._owners.get(module)
        if owner is None or owner.left_alone is not None or self._is_transformed():
            return onward(module, *args, **kwargs)
        self._is_recorded = self._is_recording()
        before, samples, deferring = None, len(self._samples), self._deferring(owner)
        if owner.first_tries and not self._is_recorded:
            owner.first_tries -= 1
            before = FullSavedState(self._torch, module)
        try:
            with deferring.following():
                result = onward(module, *args, **kwargs)
        except self._torch.OutOfMemoryError:
            raise
        except Exception as error:
            if type(error).__name__ == _STOPS_RECOMPUTING:
                raise
            why = message("model.failed", module=type(module).__name__, error=error_text(error))
        else:
            for sample in list(self._samples.values())[samples:]:
                sample.release()
            self._fused += self._here.fused
            return self._handed_back(module, owner, deferring, result)
        finally:
            self._origins.forget_calls()
        if before is not None:
            before.restore()
        # Raises the script's own error, if it is one.
        result = onward(module, *args, **kwargs)
        owner.left_alone = why
        self._note(why)
        return result

    def _handed_back(self, module: Any, owner: _Owner, deferring: Deferring, result: Any) -> Any:
        """What the script gets holds nothing that was put off, and is laid out as it would be without."""
        used = message("attention.used")
        if deferring.error is not None:
            owner.leaving = message("model.failed", module=type(module).__name__, error=deferring.error)
        elif deferring.is_anything_used_again:
            owner.leaving = used
        if deferring.is_anything_kept and not _is_let_go(deferring):
            owner.kept += 1
            is_seen = _compute_held(self._torch, module, deferring.computed)
            given = map_tensors(self._torch, result, deferring.computed)
            if is_seen or given is not result or owner.kept >= _MOST_KEPT:
                owner.leaving = used
            result = given
        if deferring.outs:
            result = map_tensors(
                self._torch, result, lambda tensor: self._in_layout(tensor, deferring.find_out(tensor))
            )
        return result

    def _is_recording(self) -> bool:
        """In a CUDA graph."""
        cuda = self._torch.cuda
        return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())

    def _is_transformed(self) -> bool:
        """Operations are differentiated or mapped by somebody, or keep no account of being written into."""
        torch = self._torch
        transforming = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", lambda: None)
        level = getattr(torch.autograd.forward_ad, "_current_level", -1)
        return bool(torch.is_inference_mode_enabled() or transforming() is not None or level >= 0)

    def _deferring(self, owner: _Owner) -> Deferring:
        """One for each thread: backward may run a part again in its own."""
        deferring: Deferring | None = getattr(self._here, "deferring", None)
        if deferring is None:
            deferring = self._here.deferring = Deferring(self._torch, self._lines, self._origins, self._attend)
        self._here.owner, self._here.fused = owner, 0
        return deferring

    def _attend(self, attention: Attention) -> Any:
        ending, torch = attention.ending, self._torch
        try:
            call = make_call(attention, self._masks, self._is_recorded)
            proof = ending.known.get(call.form) or self._find_proof(attention, call)
            if proof is None or proof.why_not is not None:
                return None
            self._uses += 1
            if self._uses in _AGAIN or self._uses % _AGAIN_EVERY == 0:
                self._take_sample(attention, call)
            out = call.run(torch, ending.p)
        except torch.OutOfMemoryError:
            raise
        except Unfit as unfit:
            self._note(unfit.why)
            return None
        except Exception as error:
            self._here.owner.leaving = message("attention.kernel_fails", error=error_text(error))
            return None
        self._here.deferring.outs.append((out, attention))
        self._here.fused += 1
        return out

    def _find_proof(self, attention: Attention, call: Call) -> Proof | None:
        proof = self._proofs.get((call.ending.sign, call.form))
        if proof is None:
            self._take_sample(attention, call)
        else:
            call.ending.known[call.form] = proof
        return proof

    def _take_sample(self, attention: Attention, call: Call) -> None:
        if not self._is_recorded:
            self._samples.setdefault((call.ending.sign, call.form), Sample(attention, call))

    def _in_layout(self, tensor: Any, of: tuple[Any, Attention] | None) -> Any:
        """In memory as what the script's own product gives, where this is a view of what the kernel gave."""
        if of is None:
            return tensor
        out, attention = of
        strides, own = [], list(zip(out.shape, out.stride(), self._strides(attention), strict=True))
        for form in zip(tensor.shape, tensor.stride(), strict=True):
            at = next((at for at, (*known, _) in enumerate(own) if tuple(known) == form), None)
            if at is None:
                return tensor.contiguous()
            strides.append(own.pop(at)[2])
        if own or tensor.stride() == tuple(strides):
            return tensor.contiguous() if own else tensor
        torch = self._torch
        return torch.empty_strided(tensor.shape, strides, dtype=out.dtype, device=out.device).copy_(tensor)

    def _strides(self, attention: Attention) -> tuple[int, ...]:
        torch, called = self._torch, attention.called
        args = [torch.empty_like(arg, device="meta") if isinstance(arg, torch.Tensor) else arg for arg in called.args]
        weights = attention.ending.weights
        args[attention.ending.weights_at] = torch.empty(weights.shape, dtype=attention.value.dtype, device="meta")
        return tuple(called.func(*args, **called.kwargs).stride())


def _is_let_go(deferring: Deferring) -> bool:
    for _ in range(_MOMENTS):
        time.sleep(_MOMENT_S)
        if not deferring.is_anything_kept:
            return True
    return False


def _compute_held(torch: Any, module: Any, computed: Callable[[Any], Any]) -> bool:
    """Of what the module's parts hold; whether there was any."""
    found = [
        (vars(part), name, given)
        for part in module.modules()
        for name, value in vars(part).items()
        if isinstance(value, torch.Tensor | list | tuple | dict)
        and (given := map_tensors(torch, value, computed)) is not value
    ]
    for attributes, name, given in found:
        attributes[name] = given
    return bool(found)

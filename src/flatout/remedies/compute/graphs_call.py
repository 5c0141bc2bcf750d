"""A module's call that is replayed where a recording stands for it, and made as ever where none does.

Calls are recorded after some of equal form have been watched: one that draws random numbers on the host, or leaves
something behind on the module, is no call that can be replayed.
"""

from __future__ import annotations

from collections import deque
from threading import get_ident
from typing import Any

from ..model.arguments import NotPlain, form_of, tensors_of
from ..model.fixed import Fixed, HostRandomness
from ..model.root_calls import Before
from ..site import Site
from .graphs_passes import Passes, Plainly
from .graphs_tape import NotRecorded, Tapes

_WATCHED_CALLS = 3
# Of the last so many calls in training, a quarter at least has to be replayed.
_CALLS_IN_MIND = 60
_MOST_FALLBACKS = 3
# So many calls in a row at which something was no longer so are no exception any more.
_MOST_CHANGED = 3
# Replays that are compared with the call itself.
_LOOKS, _LOOK_EVERY = (20, 200), 2000


class GraphedCall:
    """Stands for the call of one module."""

    def __init__(self, site: Site, module: Any, tapes: Tapes) -> None:
        self._site = site
        self._torch = site.torch
        self._module = module
        self._tapes = tapes
        self._thread = get_ident()
        self._device = next(module.parameters()).device.type
        self._form: object = None
        self._watched = 0
        self._passes: Passes | None = None
        self._fixed: Fixed | None = None
        self._changed_calls = 0
        self._replayed: deque[bool] = deque(maxlen=_CALLS_IN_MIND)
        self._why_not = ""
        self.replays = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._is_for_us():
            return self._module._call_impl(*args, **kwargs)
        form = self._form_of(args, kwargs)
        if self._passes is None:
            return self._watch(form, args, kwargs)
        self._why_not = self._why_plain(form, self._passes)
        self._replayed.append(not self._why_not)
        if self._why_not:
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

    @property
    def why_not(self) -> str:
        """Why the last call was made as ever; empty if it was not."""
        return self._why_not

    def _is_for_us(self) -> bool:
        torch = self._torch
        return bool(
            self._site.in_force
            and not Plainly.is_asked_for()
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

    def _why_plain(self, form: object, passes: Passes) -> str:
        """Why this call is not replayed; empty if it is."""
        if form != self._form:
            return "its arguments have another form"
        if passes.is_open:
            return "an earlier result is still to be differentiated"
        assert self._fixed is not None
        changed = self._fixed.changed()
        self._changed_calls = self._changed_calls + 1 if changed else 0
        if passes.fallbacks >= _MOST_FALLBACKS:
            return "its graph is differentiated more than once, or in parts"
        return changed or ""

    def _give_up_if_seldom(self) -> None:
        passes, seldom = self._passes, 4 * sum(self._replayed) < _CALLS_IN_MIND
        spent = passes is not None and passes.fallbacks >= _MOST_FALLBACKS
        if self._changed_calls >= _MOST_CHANGED or spent or (len(self._replayed) == _CALLS_IN_MIND and seldom):
            self._site.give_up(f"{type(self._module).__name__} cannot be replayed: {self._why_not}")

    def _watch(self, form: object, args: Any, kwargs: Any) -> Any:
        self._watched = self._watched + 1 if form == self._form else 0
        self._form = form
        self._replayed.append(False)
        if self._watched == 0:
            self._why_not = "its arguments have another form at each call"
            self._give_up_if_seldom()
        if self._watched <= _WATCHED_CALLS:
            return self._watched_call(args, kwargs)
        if self._record((args, kwargs)):
            assert self._passes is not None
            self.replays += 1
            return self._passes.call((args, kwargs))
        return self._module._call_impl(*args, **kwargs)

    def _watched_call(self, args: Any, kwargs: Any) -> Any:
        look = self._site.guarded(lambda: _Look(self._torch, self._module, self._device), lambda: None)
        result = self._module._call_impl(*args, **kwargs)
        why = self._site.guarded(look.found, lambda: None) if look is not None else None
        if why is not None:
            self._site.refuse(f"{type(self._module).__name__} cannot be replayed: {why}")
        return result

    def _record(self, arguments: Any) -> bool:
        """Record both passes; where that fails all is as it was, and told."""
        name, before = type(self._module).__name__, Before(self._torch, self._module)
        try:
            with Plainly():
                is_identical = self._recorded(arguments, before)
        except (NotRecorded, NotPlain) as error:
            self._site.refuse(f"{name} cannot be recorded: {error}")
            return False
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            self._site.give_up(f"{name} could not be recorded ({type(error).__name__}: {lines[0][:200]})")
            return False
        finally:
            before.restore()
        self._site.tell(recorded_at_step=self._site.step, first_replay="identical" if is_identical else "close")
        return True

    def _recorded(self, arguments: Any, before: Before) -> bool:
        """Whether the first replay was identical."""
        torch = self._torch
        for one in tensors_of(torch, arguments):
            if one.device.type != self._device:
                raise NotRecorded(f"it is given a tensor on the {one.device.type}")
        fixed = Fixed(torch, self._module)
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
        with Plainly():
            differs, _ = self._passes.differs(arguments, backward=False)
        self._site.tell(compared_replays=self.replays)
        if differs is not None:
            self._site.give_up(f"{type(self._module).__name__}: {differs}; earlier steps may be affected")


class _Look:
    """At a call that is made as ever: does it do more than compute its result?"""

    def __init__(self, torch: Any, module: Any, device_type: str) -> None:
        self._fixed = Fixed(torch, module)
        self._host = HostRandomness(torch, torchs_too=device_type != "cpu")

    def found(self) -> str | None:
        if self._host.was_used():
            return "it draws random numbers on the host"
        changed = self._fixed.changed()
        return f"it leaves something behind: {changed}" if changed is not None else None

"""Lets cudnn time its algorithms for each convolution and take the fastest.

Another algorithm adds up in another order: other rounding, the same training. Each new shape of input is timed anew, so
it is given up where shapes keep changing. A script that sets `cudnn.benchmark` itself, or asks for deterministic
algorithms, keeps its choice.

"configured" is for a script whose own config asks for it, while another line, often a `set_seed`, turns it off. Then
the config holds: `benchmark` is on from the first step, and `deterministic`, which goes against it, off.
`torch.use_deterministic_algorithms` still has the last word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...records.message import message
from ..answers import Answer, Report, has_finding, no, ran_on_gpu, torch_state, yes
from ..model.module_calls import wrap_calls
from ..model.roots import find_roots, tensors_in
from ..site import Refused, Site
from ..torch_hooks import refuse_when_set, when_called, when_set
from ..traits import Bottleneck, Traits
from ..values import Flag

ID = "cudnn.benchmark"
TITLE = "The fastest of cudnn's algorithms for each convolution"
SAFETY = "numeric"
TRAITS = Traits(Bottleneck.DEVICE, is_switchable=True)
_CONFIGURED = "configured"
VALUE = Flag(also=_CONFIGURED)
# So many new shapes within so many calls are too many to time.
_TOO_MANY, _CALLS = 15, 50
_SOME_CONVOLUTIONS = 0.2
# `benchmark` and `deterministic`.
_WANTED = (True, False)


def applies(report: Report) -> Answer:
    state = torch_state(report)
    if not ran_on_gpu(report):
        return no(message("remedy.on_cpu"))
    overruled = next(
        (finding for finding in report.findings if finding.evidence.get("cudnn_benchmark_configured") == "true"), None
    )
    is_asked = has_finding(report, "CO503") or state.get("cudnn_deterministic")
    if state.get("deterministic_algorithms") or (is_asked and overruled is None):
        return no(message("cudnn.deterministic"))
    if state.get("cudnn_benchmark"):
        return no(message("remedy.on_already"))
    if float(state.get("convolution_share") or 0.0) < _SOME_CONVOLUTIONS:
        return no(message("cudnn.no_convolutions"))
    if overruled is not None:
        return yes(_CONFIGURED, overruled.cause)
    return yes(True, message("cudnn.first_algorithm"))


def apply(site: Site, value: Any) -> None:
    torch = site.torch
    if torch.version.cuda is None:
        raise Refused(message("torch.built_without_cuda"))
    cudnn, refuse = torch.backends.cudnn, refuse_when_set(site)
    if torch.are_deterministic_algorithms_enabled() or (cudnn.deterministic and value != _CONFIGURED):
        raise Refused(message("cudnn.deterministic_asked"))
    when_called(site, torch, "use_deterministic_algorithms", lambda wanted: refuse(wanted) if wanted else None)
    when_called(
        site, torch, "set_deterministic_debug_mode", lambda mode: None if mode in (0, "default") else refuse(mode)
    )
    if value == _CONFIGURED:
        _overrule(site)
    else:
        before = cudnn.benchmark
        cudnn.benchmark = True
        site.undo(lambda: setattr(cudnn, "benchmark", before))
        when_set(site, cudnn, "benchmark", refuse)
        # Not to want them is what is so anyway.
        when_set(site, cudnn, "deterministic", lambda wanted: refuse(wanted) if wanted else None)
        site.tell(cudnn_benchmark=True)
    find_roots(site, lambda roots: wrap_calls(site, roots, ShapeWatch(site).run))


def _overrule(site: Site) -> None:
    """Whatever the script has set by the end of a step is set again, and put back when this is undone."""
    cudnn = site.torch.backends.cudnn
    own: list[tuple[bool, bool]] = []

    def after_step(step: int) -> None:
        now = (bool(cudnn.benchmark), bool(cudnn.deterministic))
        if now != _WANTED:
            own[:] = [now]
            cudnn.benchmark, cudnn.deterministic = _WANTED
            site.tell(cudnn_benchmark=True)

    def put_back() -> None:
        if own:
            cudnn.benchmark, cudnn.deterministic = own[0]

    site.each_step(after_step)
    site.undo(put_back)


class ShapeWatch:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._known: set[tuple[Any, ...]] = set()
        self._calls = self._new = 0

    def run(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], onward: Callable[..., Any]) -> Any:
        self._site.guarded(lambda: self._note(args, kwargs))
        return onward(module, *args, **kwargs)

    def _note(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._calls % _CALLS == 0:
            self._new = 0
        self._calls += 1
        shapes = tuple(tuple(tensor.shape) for tensor in tensors_in(self._site.torch, (args, kwargs)))
        if shapes not in self._known:
            self._known.add(shapes)
            self._new += 1
            if self._new >= _TOO_MANY:
                self._site.give_up(message("cudnn.shapes_change", new=self._new, calls=_CALLS))

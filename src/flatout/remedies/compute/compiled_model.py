"""Compiles the model in place, as `model.compile()` does: the names in its state stay as they are.

Fused kernels round less often: other rounding, the same training; dropout within the model draws other numbers. The
first compiled call is tried out, forward and backward, before the script gets its result; what fails there is made
again without. Then it has to show its worth: the steps before and after are timed, and a model that is slower compiled,
or that is compiled again and again, goes back to running operation by operation. The record says what compiling took
and after how many steps that is paid back.

The mode "reduce-overhead" replays CUDA graphs, where the compiler finds that sound. Capturing a graph of the whole step
from outside is not done: a branch in Python would silently be frozen.

Refused where the script compiles, or forbids it.
"""

from __future__ import annotations

import os
from typing import Any

from ...feed.reasons import error_text
from ...records.message import message
from ..answers import Answer, Report, has_finding, no, ran_on_gpu, torch_state, yes
from ..model.module_calls import CallAttempts, FullSavedState, replace_call
from ..model.repeated_calls import gradients_of, map_tensors
from ..model.roots import Root, find_roots, tensors_in
from ..site import Refused, Site
from ..traits import Bottleneck, Traits, WarmUp
from ..values import Choice
from .worth import CompileWorth

ID = "compile.model"
TITLE = "The model compiled, in place"
SAFETY = "numeric"
TRAITS = Traits(Bottleneck.GRAPH, records_operations=True, compiles_s=45.0, warm_up=WarmUp(120))
VALUE = Choice(("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"))
_WITH_GRAPHS = ("reduce-overhead", "max-autotune")
_FORBIDDEN = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")
# Compiling takes about a minute of the host's time; a run that is not much longer cannot gain by it.
_SHORT_RUN_S = 120.0


def applies(report: Report) -> Answer:
    if torch_state(report).get("compiled"):
        return no(message("compile.already"))
    if not ran_on_gpu(report):
        return no(message("compile.on_cpu"))
    if report.run.exit_code == 0 and report.run.wall_s < _SHORT_RUN_S:
        return no(message("compile.short_run", wall_s=report.run.wall_s))
    if has_finding(report, "CO507"):
        return no(message("compile.shapes_change"))
    if has_finding(report, "HO401"):
        return yes("default", message("launches.gpu_waits"))
    if has_finding(report, "CO509"):
        return yes("default", message("compile.waits_for_memory"))
    return no(message("compile.no_need"))


def apply(site: Site, value: Any) -> None:
    forbidden = [name for name in _FORBIDDEN if os.environ.get(name, "0") not in ("", "0")]
    if forbidden:
        raise Refused(message("compile.forbidden", variable=forbidden[0]))
    find_roots(site, lambda roots: _measure_then_compile(site, roots, str(value)))


def _measure_then_compile(site: Site, roots: list[Root], mode: str) -> None:
    if any(root.is_compiled for root in roots):
        raise Refused(message("model.script_compiles"))
    trained = [root for root in roots if root.with_grad]
    site.tell(modules=[root.name for root in trained], mode=mode, since_step=None)

    def begin() -> None:
        for root in trained:
            replace_call(site, root.inner, CompiledCall(site, root.inner, mode))
        site.tell(since_step=site.step)

    worth = CompileWorth(site, begin, on_device=any(root.device_type == "cuda" for root in trained))
    site.each_step(worth.step)


class CompiledCall:
    """A module's call, compiled; without compiling where that fails."""

    def __init__(self, site: Site, module: Any, mode: str) -> None:
        self._site = site
        self._module = module

        def call(*args: Any, **kwargs: Any) -> Any:
            # A frame outside torch: the compiler passes over frames of torch's own containers, and would compile the
            # parts of a Sequential one by one.
            return module._call_impl(*args, **kwargs)

        self._compiled = site.torch.compile(call, mode=None if mode == "default" else mode)
        self._graphs = mode in _WITH_GRAPHS
        self._tries = CallAttempts(site)
        self._is_proved = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module = self._module
        if not self._is_proved and self._site.torch.is_grad_enabled():
            self._is_proved = True
            if not self._prove(args, kwargs):
                return module._call_impl(*args, **kwargs)
        return self._tries.call(module, lambda: self._run(args, kwargs), lambda: module._call_impl(*args, **kwargs))

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = self._compiled(*args, **kwargs)
        if self._graphs:
            # The next replay writes over a graph's own outputs, and a script may keep them.
            result = map_tensors(self._site.torch, result, lambda tensor: tensor.clone())
        return result

    def _prove(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Does it compile, backward too? An error in the script's own backward would come too late to be mended."""
        torch, module = self._site.torch, self._module
        before = FullSavedState(torch, module)
        try:
            result = self._run(args, kwargs)
            ends = [(tensor, torch.zeros_like(tensor)) for tensor in tensors_in(torch, result)]
            gradients_of(torch, ends, [*module.parameters(), *tensors_in(torch, (args, kwargs))])
        except Exception as error:
            self._site.give_up(message("compile.fails", module=type(module).__name__, error=error_text(error)))
            return False
        finally:
            before.restore()
        return True

"""`torch.cuda.synchronize()` in the training step returns at once.

Lossless: it computes nothing, it only waits, and kernels keep their order without it. What the script measures with a
clock around it then is the time of the launches. It is kept where something may hang on it: before the first step,
without gradients (an evaluation), while a graph is captured, and at every 100th step, so that memory and errors on the
device come to light.

Refuses without CUDA; gives up when the script copies to the host without blocking (it then reads what the wait has
brought) or enters CUDA streams of its own. Waits for one stream or one event stay: they are meant. The time between two
events is waited for where it is asked.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from ...records.message import message
from ..answers import by_finding
from ..site import Refused, Site
from ..torch_hooks import is_called_by_script, when_stream_entered
from ..traits import Bottleneck, Traits

ID = "sync.skip"
TITLE = "torch.cuda.synchronize() in the step does not wait"
SAFETY = "lossless"
TRAITS = Traits(Bottleneck.SYNC)
_KEPT_EVERY_STEPS = 100

applies = by_finding(ID, message("skip.not_needed"))


def apply(site: Site, value: Any) -> None:
    torch = site.torch
    if torch.version.cuda is None:
        raise Refused(message("torch.no_cuda"))
    site.around(torch.cuda, "synchronize", partial(_synchronize, site))
    for name in ("to", "copy_"):
        site.replace(torch.Tensor, name, lambda original: _make_copy(site, original))
    # It fails for events that are still to come, and it is `synchronize` that scripts wait for them with.
    site.around(torch.cuda.Event, "elapsed_time", _wait_for_both)
    when_stream_entered(site, lambda: site.give_up(message("streams.own")))


def _synchronize(site: Site, original: Any, *args: Any, **kwargs: Any) -> Any:
    torch, is_kept = site.torch, site.step % _KEPT_EVERY_STEPS == 0
    if is_kept or not torch.is_grad_enabled() or torch.cuda.is_current_stream_capturing():
        return original(*args, **kwargs)
    site.tell(skipped_from_step=site.live.get("skipped_from_step", site.step))
    return None


def _wait_for_both(original: Any, event: Any, end_event: Any) -> Any:
    event.synchronize()
    end_event.synchronize()
    return original(event, end_event)


def _make_copy(site: Site, original: Any) -> Any:
    compiling = site.torch.compiler.is_dynamo_compiling

    def copy(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if compiling() or not (kwargs.get("non_blocking") is True or any(argument is True for argument in args)):
            return original(tensor, *args, **kwargs)
        result = original(tensor, *args, **kwargs)
        # `to` is called on what is copied, `copy_` on where it goes.
        source = args[0] if args and isinstance(args[0], site.torch.Tensor) else tensor
        if site.in_force and source.is_cuda and not result.is_cuda and is_called_by_script(sys._getframe(1)):
            site.give_up(message("skip.non_blocking_copy"))
        return result

    return copy

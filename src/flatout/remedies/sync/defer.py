"""Results on the device that are handed to a logger are read a step late, without waiting for the device.

`add_scalar(s)` of TensorBoard's writers, `Run.log` of W&B and `set_postfix` of tqdm: a tensor of one element on the
device is copied into pinned memory behind the work that makes it, and the call is made when the value has arrived,
after the next step as a rule. Lossless: the same calls in the same order, with the same values, step numbers and times
of day.

Only what is handed over as a tensor can be deferred: `loss.item()` has waited before the logger is called, and
`flatout check --fix` is for those. Refuses without CUDA: there is nothing to wait for. Before a writer is flushed or
closed, before anything else is logged there, and at the end of the script, what is under way is handed on.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...records.message import message
from ..answers import Answer, Report, has_finding, no, yes
from ..site import Refused, Site
from ..traits import Bottleneck, Traits

ID = "sync.defer"
TITLE = "Logged results are read a step late, without waiting"
SAFETY = "lossless"
TRAITS = Traits(Bottleneck.SYNC)
_WRITER = ("add_scalar", "add_scalars")
_WRITER_OTHERS = (
    "add_image", "add_images", "add_image_with_boxes", "add_figure", "add_histogram", "add_video", "add_audio",
    "add_text", "add_graph", "add_embedding", "add_pr_curve", "add_mesh", "add_hparams", "flush", "close",
)  # fmt: skip
# A class, calls of it that are deferred, and calls that wait for them.
_Logger = tuple[str, tuple[str, ...], tuple[str, ...]]
# By module.
_LOGGERS: dict[str, _Logger] = {
    "torch.utils.tensorboard.writer": ("SummaryWriter", _WRITER, _WRITER_OTHERS),
    "tensorboardX.writer": ("SummaryWriter", _WRITER, _WRITER_OTHERS),
    "wandb.sdk.wandb_run": ("Run", ("log",), ("finish", "_atexit_cleanup")),
    "tqdm.std": ("tqdm", ("set_postfix",), ("close",)),
}
_READS_ITSELF = (".item()", "float(", ".cpu()", ".tolist()", ".numpy()")
_CALLS = ("add_scalar", ".log(", "set_postfix")


def applies(report: Report) -> Answer:
    if not has_finding(report, "SY301"):
        return no(message("defer.no_waits"))
    texts = {(snippet.location.file, snippet.location.line): snippet.text for snippet in report.snippets}
    waits = [texts.get((sync.location.file, sync.location.line), "") for sync in report.syncs]
    handed = [text for text in waits if any(call in text for call in _CALLS)]
    if any(not any(word in text for word in _READS_ITSELF) for text in handed):
        return yes(True, message("defer.device_results"))
    return no(message("defer.script_reads"))


def apply(site: Site, value: Any) -> None:
    if site.torch.version.cuda is None:
        raise Refused(message("defer.no_cuda"))
    calls = DeferredCalls(site.torch)
    for module, logger in _LOGGERS.items():
        site.after_import(module, partial(_watch, site, calls, logger))
    site.each_step(lambda step: calls.hand_on(step))
    atexit.register(calls.hand_on_all)
    site.undo(lambda: atexit.unregister(calls.hand_on_all))
    site.undo(calls.hand_on_all)


def _watch(site: Site, calls: DeferredCalls, logger: _Logger, module: Any) -> None:
    owner, deferred, others = logger

    def defer(name: str, original: Any, logger: Any, *args: Any, **kwargs: Any) -> Any:
        if site.step and calls.takes(name, LoggerCall(logger, original, args, kwargs, site.step)):
            site.tell(deferred_from_step=site.live.get("deferred_from_step", site.step))
            return None
        return wait(original, logger, *args, **kwargs)

    def wait(original: Any, logger: Any, *args: Any, **kwargs: Any) -> Any:
        calls.hand_on_all(logger)
        return original(logger, *args, **kwargs)

    for name in deferred:
        site.around(getattr(module, owner), name, partial(defer, name))
    for name in others:
        site.around(getattr(module, owner), name, wait)


# Calls of loggers whose values are still being copied from the device, in their order.

# A value that takes longer than this many steps is waited for: what is logged should not be old.
_MOST_STEPS_LATE = 16
_PLAIN = (int, float, str, bool, type(None))


@dataclass(frozen=True, slots=True)
class LoggerCall:
    logger: Any
    original: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    step: int
    # When all its values are on the host; None if none is under way.
    arrived: Any = None

    @property
    def is_due(self) -> bool:
        return self.arrived is None or bool(self.arrived.query())


class DeferredCalls:
    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._waiting: deque[LoggerCall] = deque()
        self._lock = threading.RLock()

    def takes(self, name: str, call: LoggerCall) -> bool:
        """Whether this call is ours now. Not if it holds anything but numbers, words and results on the device."""
        with self._lock:
            found = _device_scalars((call.args, call.kwargs))
            queued = any(other.logger is call.logger for other in self._waiting)
            if found is None or not (found or queued):
                return False
            if len({str(tensor.device) for tensor in found}) > 1 or self._torch.cuda.is_current_stream_capturing():
                return False
            kwargs = call.kwargs
            # `walltime` is the fourth argument of both; left out, it would be the time of the late call.
            if name.startswith("add_scalar") and len(call.args) <= 3 and kwargs.get("walltime") is None:
                kwargs = {**kwargs, "walltime": time.time()}
            copies = {id(tensor): self._to_host(tensor) for tensor in found}
            arrived = None
            if found:
                arrived = self._torch.cuda.Event()
                arrived.record(self._torch.cuda.current_stream(found[0].device))
            args, kwargs = _replaced((call.args, kwargs), copies)
            self._waiting.append(replace(call, args=args, kwargs=kwargs, arrived=arrived))
            return True

    def _to_host(self, tensor: Any) -> Any:
        """Pinned, or the copy would wait after all."""
        host = self._torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return host.copy_(tensor.detach(), non_blocking=True)

    def hand_on(self, step: int) -> None:
        """Make the calls whose values are there."""
        with self._lock:
            while self._waiting:
                first = self._waiting[0]
                if first.step >= step or not (first.is_due or step - first.step > _MOST_STEPS_LATE):
                    return
                self._make_first()

    def hand_on_all(self, logger: Any = None) -> None:
        """Make all calls, or all that keep one of this logger from being the next."""
        with self._lock:
            while self._waiting and (logger is None or any(call.logger is logger for call in self._waiting)):
                self._make_first()

    def _make_first(self) -> None:
        call = self._waiting.popleft()
        if call.arrived is not None:
            call.arrived.synchronize()
        call.original(call.logger, *call.args, **call.kwargs)


def _device_scalars(value: Any) -> list[Any] | None:
    """The results on the device in it; None if there is something that could change before the call is made."""
    if isinstance(value, _PLAIN):
        return []
    if getattr(value, "is_cuda", False) is True:
        return [value] if value.numel() == 1 else None
    if type(value) in (tuple, list, dict):
        found = [_device_scalars(part) for part in (value.values() if isinstance(value, dict) else value)]
        return None if any(part is None for part in found) else [item for part in found for item in part or ()]
    return None


def _replaced(value: Any, copies: dict[int, Any]) -> Any:
    """The same with the copies in place of what is on the device, and no list or dict shared with the script."""
    if isinstance(value, dict):
        return {name: _replaced(part, copies) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_replaced(part, copies) for part in value)
    return copies.get(id(value), value)

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
from functools import partial
from typing import TYPE_CHECKING, Any

from ..answers import Answer, no, yes
from ..site import Refused
from ..values import Flag

if TYPE_CHECKING:
    from ...records.report import RunReport
    from ..site import Site

ID = "sync.defer"
TITLE = "Logged results are read a step late, without waiting"
SAFETY = "lossless"
VALUE = Flag()
_WRITER = ("add_scalar", "add_scalars")
_WRITER_OTHERS = (
    "add_image", "add_images", "add_image_with_boxes", "add_figure", "add_histogram", "add_video", "add_audio",
    "add_text", "add_graph", "add_embedding", "add_pr_curve", "add_mesh", "add_hparams", "flush", "close",
)  # fmt: skip
# module → (class, calls that are deferred, calls that wait for them)
_LOGGERS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "torch.utils.tensorboard.writer": ("SummaryWriter", _WRITER, _WRITER_OTHERS),
    "tensorboardX.writer": ("SummaryWriter", _WRITER, _WRITER_OTHERS),
    "wandb.sdk.wandb_run": ("Run", ("log",), ("finish", "_atexit_cleanup")),
    "tqdm.std": ("tqdm", ("set_postfix",), ("close",)),
}
_READS_ITSELF = (".item()", "float(", ".cpu()", ".tolist()", ".numpy()")
_CALLS = ("add_scalar", ".log(", "set_postfix")


def applies(report: RunReport) -> Answer:
    if not any(finding.code == "SY301" for finding in report.findings):
        return no("the host does not wait for results in every step")
    texts = {(one.location.file, one.location.line): one.text for one in report.snippets}
    waits = [texts.get((one.location.file, one.location.line), "") for one in report.syncs]
    handed = [text for text in waits if any(call in text for call in _CALLS)]
    if any(not any(word in text for word in _READS_ITSELF) for text in handed):
        return yes(True, "a logger is handed results that are still on the device")
    return no("the script reads the results itself (.item()), before any logger is called")


def apply(site: Site, value: Any) -> None:
    from .deferred_calls import DeferredCalls

    if site.torch.version.cuda is None:
        raise Refused("this torch has no CUDA, so nothing waits for a device")
    calls = DeferredCalls(site.torch)
    for module, (owner, deferred, others) in _LOGGERS.items():
        site.after_import(module, partial(_watch, site, calls, owner, deferred, others))
    site.each_step(lambda step: calls.hand_on(step))
    atexit.register(calls.hand_on_all)
    site.undo(lambda: atexit.unregister(calls.hand_on_all))
    site.undo(calls.hand_on_all)


def _watch(site: Site, calls: Any, owner: str, deferred: tuple[str, ...], others: tuple[str, ...], module: Any) -> None:
    for name in deferred:
        site.replace(getattr(module, owner), name, partial(_make_deferred, site, calls, name))
    for name in others:
        site.replace(getattr(module, owner), name, partial(_make_waiting, calls))


def _make_deferred(site: Site, calls: Any, name: str, original: Any) -> Any:
    def call(logger: Any, *args: Any, **kwargs: Any) -> Any:
        if site.in_force and site.step and calls.takes(logger, name, original, args, kwargs, site.step):
            site.tell(deferred_from_step=site.live.get("deferred_from_step", site.step))
            return None
        calls.hand_on_all(logger)
        return original(logger, *args, **kwargs)

    return call


def _make_waiting(calls: Any, original: Any) -> Any:
    def call(logger: Any, *args: Any, **kwargs: Any) -> Any:
        calls.hand_on_all(logger)
        return original(logger, *args, **kwargs)

    return call

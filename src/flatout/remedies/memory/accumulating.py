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

from typing import TYPE_CHECKING, Any

from ..answers import Answer, no, yes
from ..findings import found
from ..model.hooks import check_hooks, check_plain
from ..model.instance_calls import at_first_calls, replace_call
from ..site import Refused
from ..values import Choice, Count, Options
from .micro_batches import MicroBatchedCall

if TYPE_CHECKING:
    from ...records.report import RunReport
    from ..site import Site

ID = "batch.accumulate"
TITLE = "A batch in several smaller passes, for memory"
SAFETY = "training"
VALUE = Options(
    {"parts": Count(2, 1024), "batchnorm": Choice(("refuse", "allow"))}, {"parts": 2, "batchnorm": "refuse"}
)
CONFLICTS = ("compile.model", "graphs.model")


def applies(report: RunReport) -> Answer:
    if found(report, "ME704"):
        return yes({"parts": 2, "batchnorm": "refuse"}, "the allocator runs out of memory and starts over")
    return no("it saves memory and costs time; memory was not seen to run out")


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
            raise Refused(
                f"{type(part).__name__} would take its statistics over a part of the batch; allow it with"
                " batchnorm=allow"
            )

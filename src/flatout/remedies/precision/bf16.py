"""Computes forward and backward of the model in bf16 where autocast finds that safe.

Weights, gradients and optimizer stay in float32, products are done on the tensor cores with 8 bits of mantissa and
float32's range: other rounding, the same training. Every module that the training step calls from outside is run under
autocast, in evaluation too; its outputs come back in float32, so the loss is computed as before.

Refused where the script chooses a precision itself (autocast that is on, or off in so many words; half or double
weights), where an autograd function of its own says nothing about autocast, on a GPU without bf16, and where no module
is around the layers. An autocast that the script could switch on, and does not, is no such choice. Given up when the
loss is no longer finite, or when a module fails that works without.
"""

from __future__ import annotations

from typing import Any

from ...records.message import message
from ..answers import TENSOR_CORES_IDLE, Answer, Report, are_tensor_cores_idle, half_share, has_finding, no, yes
from ..site import Site
from ..traits import Bottleneck, Traits, WarmUp
from ..values import Flag
from .autocast import autocast_roots, watch_loss

ID = "precision.bf16"
TITLE = "Forward and backward in bf16, by autocast around the model"
SAFETY = "numeric"
TRAITS = Traits(Bottleneck.DEVICE, is_switchable=True, warm_up=WarmUp(10), rounding=2.0**-8)
VALUE = Flag()
CONFLICTS = ("precision.fp16",)


def applies(report: Report) -> Answer:
    half = half_share(report)
    if half:
        return no(message("precision.already_half", share=half))
    # Products in float32 gain by bf16 what they gain by TF32, and more.
    for code, words in (
        ("CO502", message("bf16.tf32_slower")),
        ("CO501", message("precision.no_tensor_cores")),
    ):
        if has_finding(report, code):
            return yes(True, words)
    if are_tensor_cores_idle(report):
        return yes(True, TENSOR_CORES_IDLE)
    return no(message("precision.not_bound"))


def apply(site: Site, value: Any) -> None:
    autocast_roots(site, site.torch.bfloat16, lambda roots: watch_loss(site))

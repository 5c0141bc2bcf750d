"""Lets the tensor cores do float32 matrix products and convolutions, in TF32.

Products are rounded to 10 bits of mantissa and summed in float32: other rounding, the same training. It does nothing on
a GPU without TF32. A script that chooses a precision itself, by whichever of torch's names, keeps its choice: the
remedy is undone first and refused.
"""

from __future__ import annotations

from typing import Any

from ...records.message import message
from ..answers import TENSOR_CORES_IDLE, Answer, Report, are_tensor_cores_idle, half_share, has_finding, no, yes
from ..site import Refused, Site
from ..torch_hooks import refuse_when_set, when_attribute_set, when_called, when_set
from ..traits import Bottleneck, Traits

ID = "precision.tf32"
TITLE = "Float32 products on the tensor cores, in TF32"
SAFETY = "numeric"
TRAITS = Traits(Bottleneck.DEVICE, is_switchable=True, rounding=2.0**-11)


def applies(report: Report) -> Answer:
    if has_finding(report, "CO501"):
        return yes(True, message("precision.no_tensor_cores"))
    if half_share(report):
        return no(message("tf32.half_precision"))
    if are_tensor_cores_idle(report):
        return yes(True, TENSOR_CORES_IDLE)
    return no(message("tf32.no_products"))


def apply(site: Site, value: Any) -> None:
    torch = site.torch
    if torch.version.cuda is None:
        raise Refused(message("torch.built_without_cuda"))
    if torch.get_float32_matmul_precision() != "highest":
        raise Refused(message("tf32.on_already", precision=torch.get_float32_matmul_precision()))
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    # Newer torch has two names for it, which may not disagree; set by the old one, the new one follows.
    new_name = getattr(matmul, "fp32_precision", None)
    before = cudnn.allow_tf32
    torch.set_float32_matmul_precision("high")
    cudnn.allow_tf32 = True

    def undo() -> None:
        torch.set_float32_matmul_precision("highest")
        if new_name is not None:
            matmul.fp32_precision = new_name
        cudnn.allow_tf32 = before

    site.undo(undo)
    _keep_the_scripts_choice(site)
    site.tell(matmul_precision="high", cudnn_allow_tf32=True)


def _keep_the_scripts_choice(site: Site) -> None:
    torch, refuse = site.torch, refuse_when_set(site)
    backends = torch.backends
    when_called(site, torch, "set_float32_matmul_precision", refuse)
    when_attribute_set(site, type(backends.cuda.matmul), ("allow_tf32", "fp32_precision"), refuse)
    for holder, name in (
        (backends.cudnn, "allow_tf32"),
        (backends.cudnn, "fp32_precision"),
        (backends, "fp32_precision"),
    ):
        when_set(site, holder, name, refuse)
    single = type(getattr(backends.cudnn, "conv", None))
    if single.__name__ == "_FP32Precision":
        when_attribute_set(site, single, ("fp32_precision",), refuse)

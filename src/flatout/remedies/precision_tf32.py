"""Lets the tensor cores do float32 matrix products and convolutions, in TF32.

Products are rounded to 10 bits of mantissa and summed in float32: other rounding, the same training. It does nothing on
a GPU without TF32, and leaves a script alone that chooses a precision itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .answers import Answer, no, yes
from .values import Flag

if TYPE_CHECKING:
    from ..records.report import RunReport
    from .site import Site

ID = "precision.tf32"
TITLE = "Float32 products on the tensor cores, in TF32"
SAFETY = "numeric"
VALUE = Flag()


def applies(report: RunReport) -> Answer:
    if any(finding.code == "CO501" for finding in report.findings):
        return yes(True, "float32 products do not use the tensor cores")
    return no("no float32 products were seen that tensor cores would speed up")


def apply(site: Site, value: Any) -> None:
    torch = site.torch
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    site.undo(lambda: torch.set_float32_matmul_precision(before[0]))
    site.undo(lambda: setattr(torch.backends.cudnn, "allow_tf32", before[1]))
    site.tell(matmul_precision="high", cudnn_allow_tf32=True)

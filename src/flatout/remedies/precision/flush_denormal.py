"""Numbers too small for the processor's quick path (subnormal: below 1e-38 in float32) become zero.

Such a number is 1e-38 of what weights and activations usually are: other rounding, the same training. It is set before
the script begins, so that all threads that torch computes with have it. A script that sets it itself keeps its choice.
"""

from __future__ import annotations

from typing import Any

from ...records.message import message
from ..answers import by_finding
from ..site import Refused, Site
from ..torch_hooks import refuse_when_set, when_called
from ..traits import Bottleneck, Traits

ID = "precision.flush_denormal"
TITLE = "Subnormal numbers are zero"
SAFETY = "numeric"
TRAITS = Traits(Bottleneck.HOST)

applies = by_finding(ID, message("flush_denormal.none_seen"))


def apply(site: Site, value: Any) -> None:
    torch = site.torch
    if not torch.set_flush_denormal(True):
        raise Refused(message("flush_denormal.unsupported"))
    site.undo(lambda: torch.set_flush_denormal(False))
    when_called(site, torch, "set_flush_denormal", refuse_when_set(site))
    site.tell(flush_denormal=True)

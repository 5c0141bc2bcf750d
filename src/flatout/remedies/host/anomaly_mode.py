"""Autograd's anomaly detection stays off, whoever switches it on.

Lossless: it looks at every gradient and writes down every operation, and changes none of their values. What goes with
it is its error at the first NaN, with the line that made it: a training that would have ended there goes on. It is
meant for a search that is over; while you look for a NaN, leave this remedy out.
"""

from __future__ import annotations

from typing import Any

from ...records.message import message
from ..answers import by_finding
from ..site import Site
from ..traits import Bottleneck, Traits

ID = "autograd.plain"
TITLE = "Anomaly detection of autograd is off"
SAFETY = "lossless"
TRAITS = Traits(Bottleneck.HOST, is_switchable=True)

applies = by_finding(ID, message("autograd.was_off"))


def apply(site: Site, value: Any) -> None:
    torch = site.torch
    before = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    # Every way to switch it on, as a call or around a block, ends in this function.
    plain = torch.set_anomaly_enabled

    def keep_off(original: Any, enabled: bool, check_nan: bool = True) -> Any:
        if enabled:
            site.tell(kept_off=True)
        return original(False, check_nan)

    site.around(torch, "set_anomaly_enabled", keep_off)
    plain(False)
    site.undo(lambda: plain(*before))

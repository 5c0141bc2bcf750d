"""Autograd's anomaly detection stays off, whoever switches it on.

Lossless: it looks at every gradient and writes down every operation, and changes none of their values. What goes with
it is its error at the first NaN, with the line that made it: a training that would have ended there goes on. It is
meant for a search that is over; while you look for a NaN, leave this remedy out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...records.message import message
from ..answers import Answer, by_finding
from ..traits import Bottleneck, Traits
from ..values import Flag

if TYPE_CHECKING:
    from ...records.report import RunReport
    from ..site import Site

ID = "autograd.plain"
TITLE = "Anomaly detection of autograd is off"
SAFETY = "lossless"
TRAITS = Traits(Bottleneck.HOST, is_switchable=True)
VALUE = Flag()


def applies(report: RunReport) -> Answer:
    return by_finding(report, ID, message("autograd.was_off"))


def apply(site: Site, value: Any) -> None:
    torch = site.torch
    before = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    # Every way to switch it on, as a call or around a block, ends in this function.
    plain = torch.set_anomaly_enabled
    site.replace(torch, "set_anomaly_enabled", lambda original: _make(site, original))
    plain(False)
    site.undo(lambda: plain(*before))


def _make(site: Site, original: Any) -> Any:
    def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> Any:
        if not site.in_force or not enabled:
            return original(enabled, check_nan)
        site.tell(kept_off=True)
        return original(False, check_nan)

    return set_anomaly_enabled

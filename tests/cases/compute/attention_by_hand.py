"""Runs that have CO510, and that must stay quiet."""

from __future__ import annotations

from typing import Any

from flatout.records.evidence import HandAttention
from flatout.records.report import Ladder, Rung
from flatout.records.roofline import Roofline
from tests.cases.evidence import Case, live_state, on_gpu, run

_ROOFLINE = Roofline("NVIDIA H200", {"bfloat16": 790.0}, 4200.0, 8.0, "measured", "2.11.0")
_LADDER = Ladder(1e12, 10.0, 0.2, "data sheet", "bfloat16", 900.0, _ROOFLINE, (Rung("step", 100.0),))


def _case(name: str, found: bool, gb: float | None = 100.0, ladder: Ladder | None = _LADDER, **changes: Any) -> Case:
    attention = None if gb is None else HandAttention(12.0, 1024, 1024, 1e9 * gb)
    state = live_state(compiled=changes.pop("compiled", False))
    return Case(name, run(gpu=on_gpu(ladder=ladder, **changes), live=state, hand_attention=attention), found)


CASES = (
    _case("finds it when the scores move through memory", found=True),
    _case("quiet when no attention is written by hand", found=False, gb=None),
    _case("quiet when its scores are small", found=False, gb=0.1),
    _case("quiet when nobody knows what the device can do", found=False, ladder=None),
    _case("quiet when it is compiled", found=False, compiled=True),
    _case("quiet when the host binds", found=False, drained_share=0.7),
)

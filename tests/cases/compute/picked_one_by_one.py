"""Runs that have CO522, and that must stay quiet."""

from __future__ import annotations

from dataclasses import replace

from flatout.records.evidence import PickedParts
from tests.cases.evidence import HERE, Case, on_gpu, run

_PICKS = PickedParts(HERE, "recursion", 1.0, count=384.0, elements=147456.0, picked=147456.0, backward_ms=20.0)
CASES = (
    Case("finds it when a loop picks each step of a sequence", run(picked_parts=(_PICKS,)), found=True),
    Case("finds it on a GPU", run(gpu=on_gpu(), picked_parts=(_PICKS,)), found=True),
    Case(
        "finds it when one function picks from several tensors",
        run(picked_parts=tuple(replace(_PICKS, tensors=0.5, backward_ms=1.5) for _ in range(4))),
        found=True,
    ),
    Case("quiet when it hardly takes time", run(picked_parts=(replace(_PICKS, backward_ms=0.05),)), found=False),
    Case("quiet without", run(), found=False),
)

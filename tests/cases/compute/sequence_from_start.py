"""Runs that have CO520, and that must stay quiet."""

from __future__ import annotations

from dataclasses import replace

from flatout.records.evidence import GrowingCalls
from tests.cases.evidence import HERE, Case, on_gpu, run

# A GRU over 1 to 32 elements: 528 computed where 32 would do.
_CALLS = GrowingCalls(
    "GRU",
    HERE,
    "rollout",
    sequences=1.0,
    calls=32.0,
    dimension=1,
    first_length=1.0,
    last_length=32.0,
    computed=528.0,
    needed=32.0,
    is_known=False,
    forward_ms=20.0,
    backward_ms=40.0,
    fixed_ms=0.1,
)
CASES = (
    Case("finds it when each element is made from the ones before", run(growing_calls=(_CALLS,)), found=True),
    Case("finds it when all are known before", run(growing_calls=(replace(_CALLS, is_known=True),)), found=True),
    Case(
        "finds it when no gradient is needed of the calls",
        run(growing_calls=(replace(_CALLS, backward_ms=0.0),)),
        found=True,
    ),
    Case(
        "finds it when the GPU is busy with it",
        run(gpu=on_gpu(), growing_calls=(replace(_CALLS, fixed_ms=0.6),)),
        found=True,
    ),
    Case(
        "finds it when the host launches each call, but one would do",
        run(gpu=on_gpu(drained_share=0.8), growing_calls=(replace(_CALLS, fixed_ms=0.6, is_known=True),)),
        found=True,
    ),
    Case(
        "finds it when several modules together are worth it",
        run(growing_calls=(replace(_CALLS, forward_ms=2.0, backward_ms=3.0, fixed_ms=0.0),) * 3),
        found=True,
    ),
    Case(
        "quiet when a call costs the same however long its input is, and all calls have to stay",
        run(growing_calls=(replace(_CALLS, forward_ms=20.0, backward_ms=20.0, fixed_ms=0.625),)),
        found=False,
    ),
    Case(
        "quiet when it costs little",
        run(growing_calls=(replace(_CALLS, forward_ms=0.5, backward_ms=1.0, fixed_ms=0.0),)),
        found=False,
    ),
    Case("quiet without such calls", run(), found=False),
)

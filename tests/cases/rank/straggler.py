"""Runs that have RA901, and that must stay quiet."""

from __future__ import annotations

from tests.cases.evidence import Case, make_rank, on_gpu, run, two_ranks

_SLOW = make_rank(1, data=41.0, forward=30.0, backward=20.0, optimizer=9.0)
_USUAL = make_rank(0, data=1.0, forward=30.0, backward=60.0, optimizer=9.0)
_MS = {"data": 21.0, "forward": 30.0, "backward": 40.0, "optimizer": 9.0}
CASES = (
    Case("finds it when one rank loads slowly", run(ms=_MS, ranks=(_USUAL, _SLOW)), found=True),
    Case(
        "finds it by the time on the devices",
        run(
            gpu=on_gpu(),
            ranks=two_ranks(),
            rank_device_ms=(
                {"starved": 0.0, "forward": 30.0, "backward": 60.0, "optimizer": 8.0},
                {"starved": 20.0, "forward": 30.0, "backward": 40.0, "optimizer": 8.0},
            ),
        ),
        found=True,
    ),
    Case("quiet when the ranks are alike", run(ranks=two_ranks()), found=False),
    Case(
        "quiet when it was slow for a while only",
        run(ms=_MS, ranks=(_USUAL, _SLOW), rank_parts_ms=(({"data": 1.0},) * 2, ({"data": 81.0}, {"data": 1.0}))),
        found=False,
    ),
    Case("quiet when there is one rank", run(ms=_MS, ranks=(_SLOW,)), found=False),
    Case(
        "quiet when processes do not step together",
        run(ms=_MS, ranks=(_USUAL, make_rank(1, data=80.0, forward=30.0, backward=60.0))),
        found=False,
    ),
    Case(
        "quiet when it is the evaluation that one rank does for all",
        run(ms=_MS, ranks=(_USUAL, make_rank(1, data=1.0, eval=40.0, forward=30.0, backward=20.0, optimizer=9.0))),
        found=False,
    ),
)

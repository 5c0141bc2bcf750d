"""Runs that have ME704, and that must stay quiet."""

from __future__ import annotations

from tests.cases.evidence import Case, on_gpu, run


def _live(retries: int | None) -> dict[str, object]:
    return {"torch": {"alloc_retries": retries}, "loaders": [], "optimizers": []}


CASES = (
    Case("finds it when there were retries", run(gpu=on_gpu(), live=_live(12)), found=True),
    Case("quiet without any", run(gpu=on_gpu(), live=_live(0)), found=False),
    Case("quiet on a CPU", run(live=_live(None)), found=False),
)

"""The loaders alone, where their batches are pinned and brought to the device ahead of time."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.experiment.request import Request
from flatout.experiment.runner import TrialRunner
from flatout.experiment.statistics.rates import rate
from flatout.words import english

pytestmark = pytest.mark.gpu
_SCRIPT = Path(__file__).parent / "scripts" / "prefetch_cuda.py"


@pytest.mark.parametrize("mode", ["dict", "views"])
def test_batches_brought_to_the_device_are_counted_and_no_faster_than_they_are_made(tmp_path: Path, mode: str) -> None:
    command = (str(_SCRIPT), mode, "3000")  # batches, so that neither comes to the end of an epoch
    remedies = {"loader.pin": True, "transfer.prefetch": True}

    plain = TrialRunner(tmp_path)(Request(command, "as it is", remedies, steps=300, seconds=20.0))
    alone = TrialRunner(tmp_path)(Request(command, "feed", remedies, steps=300, seconds=20.0, feeds=True))

    assert alone.ending == "stopped", english(alone.why)
    assert set(alone.samples) == {64}
    # A model so small waits for its loader: alone that is about as fast, and never much slower.
    assert rate(alone).per_s > 0.8 * rate(plain).per_s

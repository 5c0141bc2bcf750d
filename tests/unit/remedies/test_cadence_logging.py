"""Pictures every k-th time; scalars always."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.unit.remedies.applied import applied

tensorboard = pytest.importorskip("torch.utils.tensorboard", reason="tensorboard is not installed: make setup")


def _logged(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"images": 0, "histograms": 0, "scalars": 0})
    events.Reload()
    return events


def test_each_tag_has_its_own_count(tmp_path: Path) -> None:
    with applied("cadence.logging", 3), tensorboard.SummaryWriter(str(tmp_path)) as writer:
        for step in range(7):
            writer.add_image("a", np.zeros((3, 2, 2), np.uint8), step)
            if step >= 2:
                writer.add_histogram(tag="b", values=np.arange(4), global_step=step)
            writer.add_scalar("loss", step, step)

    seen = _logged(tmp_path)
    assert [event.step for event in seen.Images("a")] == [0, 3, 6]
    assert [event.step for event in seen.Histograms("b")] == [2, 5]
    assert [event.step for event in seen.Scalars("loss")] == list(range(7))


def test_a_figure_that_is_not_written_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[object] = []
    pyplot: Any = ModuleType("matplotlib.pyplot")
    pyplot.close = closed.append
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", pyplot)
    monkeypatch.setattr(tensorboard.SummaryWriter, "add_figure", lambda *_, **__: None)

    with applied("cadence.logging", 3), tensorboard.SummaryWriter(str(tmp_path)) as writer:
        for step in range(4):
            writer.add_figure("plot", f"figure {step}", step)
        for step in range(2):
            writer.add_figure("kept open", f"other {step}", global_step=step, close=False)

    assert closed == ["figure 1", "figure 2"]

"""What was kept, written into the source: as a diff, and with --apply as an edit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flatout.app.fix import Asked, _with_patch
from flatout.records.plan import Planned
from tests.unit.report.test_fix import FIX

_SOURCE = """import torch
from torch.utils.data import DataLoader


def train(model, dataset, optimizer):
    device = torch.device("cuda")
    loader = DataLoader(dataset, batch_size=8, num_workers=4)
    for x in loader:
        x = x.to(device)
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize("edit", [False, True])
def test_safe_changes_are_written_and_made_on_demand(tmp_path: Path, edit: bool) -> None:
    script = tmp_path / "train.py"
    script.write_text(_SOURCE)
    kept = replace(FIX.tried[0], planned=Planned("loader.pin", True, "lossless", "t", "why", ("TR201", "TR204")))
    fix = replace(FIX, tried=(kept,), sources=(str(script),))

    said = _with_patch(fix, Asked(("train.py",), edit=edit, profile=tmp_path / "flatout.toml"))

    assert "+    loader = DataLoader(dataset, batch_size=8, num_workers=4, pin_memory=True)" in (
        tmp_path / "flatout.patch"
    ).read_text().replace("\x1b", "")
    assert ("pin_memory=True" in script.read_text()) is edit
    assert "flatout.patch" in said.notices[-1]


def test_what_is_not_safe_stays_with_the_profile(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(_SOURCE)

    said = _with_patch(
        replace(FIX, sources=(str(script),)), Asked(("train.py",), edit=True, profile=tmp_path / "flatout.toml")
    )

    assert script.read_text() == _SOURCE and not (tmp_path / "flatout.patch").exists()
    assert "none of this can be written into the source safely" in said.notices[-1]

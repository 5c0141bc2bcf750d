"""What was kept, written into the source: as a diff, and with --apply as an edit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flatout.app.fix import FixOptions, _with_patch
from flatout.experiment.judge import workers_of
from flatout.experiment.proof import _sources
from flatout.records.fix import Planned
from flatout.records.message import Message, message, verbatim
from flatout.records.report import Location, RelatedLine, RemedyState
from flatout.records.trial import Trial
from flatout.words import english
from tests.unit.experiment.known_machine import found
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
    kept = replace(
        FIX.tried[0], planned=Planned("loader.pin", True, "lossless", "t", verbatim("why"), ("TR201", "TR204"))
    )
    fix = replace(FIX, tried=(kept,), sources=(str(script),))

    said = _with_patch(fix, FixOptions(("train.py",), edit=edit, profile=tmp_path / "flatout.toml"))

    assert "+    loader = DataLoader(dataset, batch_size=8, num_workers=4, pin_memory=True)" in (
        tmp_path / "flatout.patch"
    ).read_text().replace("\x1b", "")
    assert ("pin_memory=True" in script.read_text()) is edit
    assert "flatout.patch" in english(said.notices[-1])


def test_what_is_not_safe_stays_with_the_profile(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(_SOURCE)

    said = _with_patch(
        replace(FIX, sources=(str(script),)), FixOptions(("train.py",), edit=True, profile=tmp_path / "flatout.toml")
    )

    assert script.read_text() == _SOURCE and not (tmp_path / "flatout.patch").exists()
    assert "none of this can be written into the source safely" in english(said.notices[-1])


def test_the_patch_has_the_number_of_workers_that_was_measured(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(_SOURCE.replace("num_workers=4", "num_workers=0"))
    kept = replace(
        FIX.tried[0], planned=Planned("loader.workers", "auto", "lossless", "t", verbatim("why"), ("IN101",))
    )
    fix = replace(FIX, tried=(kept,), sources=(str(script),), workers=11)

    _with_patch(fix, FixOptions(("train.py",), edit=True, profile=tmp_path / "flatout.toml"))

    assert "num_workers=11, persistent_workers=True" in script.read_text()
    assert "num_workers=11" in (tmp_path / "flatout.patch").read_text()


def _trial(**live: object) -> Trial:
    return Trial(
        "profile", {}, "stopped", states=(RemedyState("loader.workers", "lossless", "auto", "applied", live=live),)
    )


def _set(before: int, after: int) -> Message:
    return message("workers.set", before=before, after=after)


def test_workers_are_those_that_the_trials_settled_at() -> None:
    (finding,) = found("loader.workers").findings
    other = replace(finding, code="CA602", location=Location("train.py", 9))
    trials = [
        _trial(**{"train.py:7": _set(0, count), "train.py:9": _set(0, 16), "randomness": "none"})
        for count in (12, 10, 11)
    ]

    assert workers_of(trials, [finding, other]) == 11
    assert workers_of([_trial(**{"train.py:7": "num_workers stays 0: a batch takes 0.1 ms"})], [finding]) is None


def test_of_several_loaders_that_one_line_makes_the_training_has_the_most_workers() -> None:
    (finding,) = found("loader.workers").findings
    trial = _trial(**{"train.py:7": _set(1, 3), "train.py:7 (2)": _set(2, 12)})

    assert workers_of([trial], [finding]) == 12


def test_a_patch_is_made_for_source_only() -> None:
    (finding,) = found("loader.workers").findings
    written = RelatedLine(Location("options.py", 3), verbatim("is written here"))
    in_config = replace(finding, location=Location("configs/full.yaml", 34))

    assert _sources([replace(finding, related=(written,)), in_config]) == ("train.py", "options.py")

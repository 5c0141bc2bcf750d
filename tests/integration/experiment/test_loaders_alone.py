"""Trials of the loaders alone, in real processes: the pace that is measured is the pace that was written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from flatout.diagnose.ranks import training_ranks
from flatout.experiment.request import Request
from flatout.experiment.runner import TrialRunner
from flatout.experiment.statistics.ceiling import measure_ceiling
from flatout.experiment.statistics.rates import rate
from flatout.experiment.trial_reader import NOT_FED
from flatout.records.trial import Trial
from flatout.store.run import StoredRun

pytestmark = pytest.mark.durations

_SCRIPTS = Path(__file__).parents[1] / "scripts"
_SAMPLE_S = 0.005
# Two processes that wait for a third on a busy machine; one worker less or batches made ahead would be far off.
_OF_WORKERS = 0.25
Fed = Callable[..., Trial]


@pytest.fixture
def fed(tmp_path: Path) -> Fed:
    def made(style: str, workers: int, remedies: Mapping[str, Any] | None = None) -> Trial:
        command = (str(_SCRIPTS / "paced.py"), style, str(workers))
        return TrialRunner(tmp_path)(Request(command, "feed", remedies or {}, steps=40, seconds=10.0, feeds=True))

    return made


def test_the_pace_of_a_loader_is_its_own_and_no_longer_the_trainings(fed: Fed) -> None:
    trial = fed("one", 0)

    assert trial.ending == "stopped"
    assert rate(trial).unit == "sample"
    assert rate(trial).per_s == pytest.approx(1 / _SAMPLE_S, rel=0.10)
    # More than an epoch of 25, of which 9 were trained on.
    assert trial.steps == 9
    assert len(trial.step_s) >= 40 and set(trial.samples) == {4}


def test_two_workers_on_a_stream_are_twice_as_fast_once_what_they_had_ready_is_gone(fed: Fed) -> None:
    trial = fed("stream", 2)
    (figures,) = training_ranks(StoredRun(Path(trial.run)))[0].recording.values("feed")

    assert figures["drained"] >= 2 * 2
    assert sum(trial.samples) / sum(trial.step_s) == pytest.approx(2 / _SAMPLE_S, rel=_OF_WORKERS)


def test_a_step_on_two_loaders_takes_batches_of_both(fed: Fed) -> None:
    trial = fed("two", 0)

    assert set(trial.samples) == {12}
    assert rate(trial).per_s == pytest.approx(1 / _SAMPLE_S, rel=0.10)


def test_a_remedy_in_force_is_part_of_the_pace_and_of_the_ceiling(fed: Fed) -> None:
    trial = fed("long", 0, {"loader.workers": 2})
    slow = Trial("as it is", {}, "stopped", step_s=(0.05,) * 40, samples=(4.0,) * 40)

    found = measure_ceiling([slow], [], [trial])

    assert [state.state for state in trial.states] == ["applied"]
    assert found is not None and found.feed_per_s == pytest.approx(2 / _SAMPLE_S, rel=_OF_WORKERS)
    assert found.binds == "feed"


def test_where_no_loader_feeds_the_training_that_is_said(tmp_path: Path) -> None:
    trial = TrialRunner(tmp_path)(Request((str(_SCRIPTS / "slicing.py"),), "feed", feeds=True))

    assert not trial.ended_well
    assert (trial.ending, trial.why, trial.step_s) == ("stopped", NOT_FED, ())

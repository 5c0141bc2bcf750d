"""Trials on a real Ray cluster of one node."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from flatout.experiment.tuning.objective import Objective
from flatout.experiment.tuning.on_ray import OnRay
from flatout.experiment.tuning.search import Journal, MemoryModel, SettingSearch
from flatout.experiment.tuning.strategies import Lengths, halve
from flatout.records.trial import Trial
from flatout.records.tune import Ask
from flatout.words import english

ray = pytest.importorskip("ray", reason="ray is not installed: make setup")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def _measure(ask: Ask) -> Trial:
    size = ask.setting["size"]
    if size == 3:
        os._exit(7)
    return Trial(
        "x",
        {},
        "stopped",
        step_s=(1.0 / size,) * ask.steps,
        samples=(1.0,) * ask.steps,
        run=f"{os.getcwd()} {os.getpid()}",
    )


def test_a_search_on_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # Pickled by value: the cluster's workers cannot import a test.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    objective = Objective("samples/s", None)
    settings = [{"size": size} for size in (1, 2, 3, 4)]

    with OnRay("ray", processors=2) as place, Journal(tmp_path) as journal:
        search = SettingSearch(_measure, journal, MemoryModel((), None), spread=place.spread)
        search.run(halve(settings, Lengths(8, 24), objective))
        seen = [journal.find(Ask(setting, 8)) for setting in settings]

    by_size = {point.setting["size"]: point for point in search.points if point.steps == 8}
    assert place.width == 1, "a trial takes the whole node"
    assert english(by_size[3].why).startswith("crashed: WorkerCrashedError")
    assert by_size[4].samples_per_s == pytest.approx(4.0)
    assert max(search.points, key=objective.score).setting == {"size": 4}
    places = [trial.run.split()[0] for trial in seen if trial is not None and trial.run]
    assert places == [str(tmp_path)] * 3
    assert all(str(os.getpid()) not in trial.run for trial in seen if trial is not None)
    assert not ray.is_initialized(), "a cluster that was started here ends here"

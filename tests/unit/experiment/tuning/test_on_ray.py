"""What a trial takes of a Ray cluster. The cluster itself is in the integration tests."""

from __future__ import annotations

import sys

import pytest

from flatout.errors import FlatoutError
from flatout.experiment.tuning.on_ray import OnRay, share


@pytest.mark.parametrize(
    ("nodes", "takes", "at_once"),
    [
        ([{"CPU": 2.0}], {"num_cpus": 2.0}, 1),
        ([{"CPU": 8.0}, {"CPU": 4.0}], {"num_cpus": 4.0}, 2),
        ([{"CPU": 64.0, "GPU": 4.0}, {"CPU": 48.0, "GPU": 4.0}], {"num_gpus": 1.0, "num_cpus": 12.0}, 8),
        ([{"CPU": 1.0, "GPU": 2.0}, {"CPU": 8.0}], {"num_gpus": 1.0, "num_cpus": 1.0}, 2),
    ],
)
def test_trials_do_not_measure_each_other(nodes: list[dict[str, float]], takes: dict[str, float], at_once: int) -> None:
    assert share(nodes) == (takes, at_once)


def test_a_cluster_without_processors_is_none() -> None:
    with pytest.raises(FlatoutError, match="no node"):
        share([{"memory": 1.0}])


def test_without_ray_there_is_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)

    with pytest.raises(FlatoutError, match=r"pip install 'flatout\[ray\]'"):
        OnRay("ray")

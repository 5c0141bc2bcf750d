"""cudnn may search for its fastest algorithms, as long as shapes stay the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from flatout.problems.catalogue import problems
from flatout.records.evidence import Configured, Setting
from flatout.records.report import Location
from flatout.remedies.catalogue import known
from flatout.remedies.site import Site
from tests.cases.evidence import on_gpu, run
from tests.unit.remedies.applied import applied, reason
from tests.unit.remedies.training import steps_told_to


@pytest.fixture(autouse=True)
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch built for CUDA has the same switches."""
    monkeypatch.setattr(torch.version, "cuda", "12.8")


def _train(site: Site, lengths: list[int]) -> None:
    model = nn.Sequential(nn.Conv1d(1, 1, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with steps_told_to(site):
        for length in lengths:
            model(torch.ones(1, 1, length)).sum().backward()
            optimizer.step()


def test_it_is_set_and_put_back() -> None:
    with applied("cudnn.benchmark") as site:
        _train(site, [4] * 20)

        assert torch.backends.cudnn.benchmark and site.in_force
    assert not torch.backends.cudnn.benchmark
    assert "__call__" not in nn.Sequential.__dict__


def test_shapes_that_keep_changing_switch_it_off() -> None:
    with applied("cudnn.benchmark") as site:
        _train(site, list(range(1, 25)))

        assert site.state == "reverted" and "15 new shapes in 50 calls" in reason(site)
        assert not torch.backends.cudnn.benchmark


def test_a_few_sizes_in_turn_do_not() -> None:
    with applied("cudnn.benchmark") as site:
        _train(site, [1 + n % 8 for n in range(120)])

        assert site.in_force


def _set(name: str, value: bool) -> None:
    setattr(torch.backends.cudnn, name, value)


@pytest.mark.parametrize(
    "choose",
    [
        lambda: _set("benchmark", False),
        lambda: _set("deterministic", True),
        lambda: torch.use_deterministic_algorithms(True),
        lambda: torch.set_deterministic_debug_mode("warn"),
    ],
    ids=["benchmark", "deterministic", "algorithms", "debug mode"],
)
def test_the_scripts_choice_holds(choose: Callable[[], None]) -> None:
    try:
        with applied("cudnn.benchmark") as site:
            choose()

            assert site.state == "refused" and reason(site).startswith("the script sets it itself")
            assert not torch.backends.cudnn.benchmark
    finally:
        torch.backends.cudnn.deterministic = False
        torch.use_deterministic_algorithms(False)


def test_not_to_want_determinism_is_no_choice_against_it() -> None:
    with applied("cudnn.benchmark") as site:
        torch.backends.cudnn.deterministic = False

        assert site.in_force and torch.backends.cudnn.benchmark


def test_where_the_config_asks_for_it_a_seeding_helper_does_not_turn_it_off() -> None:
    cudnn = torch.backends.cudnn
    try:
        with applied("cudnn.benchmark", "configured") as site:
            _set("deterministic", True)
            _set("benchmark", False)
            _train(site, [4] * 8)

            assert site.in_force and (cudnn.benchmark, cudnn.deterministic) == (True, False)
        assert (cudnn.benchmark, cudnn.deterministic) == (False, True)
    finally:
        _set("deterministic", False)


def test_deterministic_algorithms_have_the_last_word_all_the_same() -> None:
    try:
        with applied("cudnn.benchmark", "configured") as site:
            _train(site, [4] * 8)
            torch.use_deterministic_algorithms(True)

            assert site.state == "refused" and not torch.backends.cudnn.benchmark
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    ("configured", "algorithms", "value"), [(True, False, "configured"), (True, True, None), (False, False, None)]
)
def test_it_is_proposed_to_a_deterministic_script_only_if_its_config_asks_for_it(
    configured: bool, algorithms: bool, value: str | None
) -> None:
    (problem,) = (one for one in problems() if one.code == "CF802")
    setting = Setting("cudnn_benchmark", "train.cudnn_benchmark", True, Location("full.yaml", 33))
    case = run(gpu=on_gpu(), configured=Configured((setting,) if configured else ()))
    state = {"cudnn_benchmark": False, "cudnn_deterministic": True, "convolution_share": 0.5}
    live = {"torch": {**state, "deterministic_algorithms": algorithms}}
    evidence = replace(case, report=replace(case.report, live=live))
    report = replace(evidence.report, findings=tuple(problem.found_in_run(evidence)))

    assert known()["cudnn.benchmark"].applies(report).value == value
    assert bool(report.findings) == configured

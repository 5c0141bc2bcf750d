"""When CUDA graphs are worth a trial, which models are refused, and what it takes to stay in force."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from flatout.experiment.sizing import warm_up_steps
from flatout.records.message import message, verbatim
from flatout.records.report import Finding, GpuUse, PhaseShare, RunReport
from flatout.remedies.catalogue import known
from flatout.remedies.compute import graphed_model as graphs
from flatout.remedies.compute.graphed_model import GraphsWorth, check_module
from flatout.remedies.site import Refused, Site
from flatout.words import english
from tests.cases.evidence import on_gpu, run
from tests.unit.remedies.applied import applied, reason, site_for
from tests.unit.remedies.graph_tapes import CpuTapes
from tests.unit.remedies.training import Net, train


def _report(*codes: str, **changes: Any) -> RunReport:
    report = run(gpu=on_gpu()).report
    findings = tuple(
        Finding(code, "x", "x", "high", None, {}, verbatim("the cause"), None, None, None) for code in codes
    )
    return replace(report, findings=findings, **changes)


def test_a_run_that_waits_for_launches_asks_for_it() -> None:
    answer = known()["graphs.model"].applies(_report("HO401"))

    assert answer.is_yes and known()["graphs.model"].value.read(answer.value) is True


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (_report(), "not seen to hold the GPU up"),
        (_report("HO401", "CO507"), "shapes change"),
        (_report("HO401", live={"torch": {"compiled": True}}), "compiles"),
        (replace(_report("HO401"), run=replace(_report().run, device="cpu")), "on the CPU"),
        (replace(_report("HO401"), run=replace(_report().run, ranks=2)), "several processes"),
    ],
)
def test_other_runs_do_not(report: RunReport, why: str) -> None:
    answer = known()["graphs.model"].applies(report)

    assert not answer.is_yes and why in english(answer.why)


@pytest.mark.parametrize(
    ("busy", "sm", "dry", "forward", "is_tried"),
    [
        (0.62, 0.38, 0.2, 0.27, True),  # a small network, as it was measured
        (0.65, 0.54, 0.78, 0.27, True),  # many windows of attention, as it was measured
        (0.75, 0.55, 0.2, 0.27, False),  # large kernels
        (0.95, 0.38, 0.2, 0.27, False),  # always at work
        (0.62, 0.38, 0.2, 0.05, False),  # the host does something else
    ],
)
def test_where_host_and_gpu_hold_each_other_up_it_is_tried(
    busy: float, sm: float, dry: float, forward: float, is_tried: bool
) -> None:
    shares = {"data": 0.09, "forward": forward, "backward": 0.29, "optimizer": 0.09, "eval": 0.14, "checkpoint": 0.06}
    phases = {name: PhaseShare(share, 20 * share) for name, share in shares.items()}
    gpu = GpuUse(busy_share=busy, sm_active=sm, drained_share=dry)

    assert known()["graphs.model"].applies(replace(_report(), gpu=gpu, phases=phases)).is_yes is is_tried


def test_on_the_cpu_it_is_refused_and_the_training_goes_on() -> None:
    torch.manual_seed(0)
    plain = train(site_for("graphs.model", True), Net())
    torch.manual_seed(0)

    with applied("graphs.model") as site:
        losses = train(site, Net())

        assert site.state == "refused" and "Net runs on the cpu" in reason(site)
    assert losses == plain


def test_from_the_first_step_to_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """On tapes of the CPU, which are slower than the calls themselves."""
    monkeypatch.setattr(graphs, "check_root", lambda torch, root: check_module(torch, root.module))
    monkeypatch.setattr(graphs, "CudaTapes", lambda torch, device: CpuTapes())

    def make() -> nn.Module:
        inner = (part for _ in range(4) for part in (nn.Linear(8, 8), nn.Tanh()))
        return nn.Sequential(*inner, nn.Dropout(0.2), nn.Linear(8, 1))

    torch.manual_seed(0)
    plain = train(site_for("graphs.model", True), make(), 100)
    torch.manual_seed(0)

    with applied("graphs.model") as site:
        losses = train(site, make(), 100)

        assert site.live["since_step"] == 30 and site.live["recorded_at_step"] == 34
        assert site.live["first_replay"] == "identical" and site.live["compared_replays"] == 20
        assert site.state == "reverted" and "ms replayed" in reason(site)
    assert losses == plain


def _hooked(module: Any) -> None:
    module[0].register_full_backward_hook(lambda *_: None)


def _parametrized(module: Any) -> None:
    nn.utils.parametrizations.weight_norm(module[0])


def _on_two_devices(module: Any) -> None:
    module[1] = nn.Linear(4, 4, device="meta")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_hooked, "a hook on Linear"),
        (_parametrized, "computed anew"),
        (_on_two_devices, "several devices"),
        (lambda module: module.append(nn.LSTM(4, 4)), "LSTM moves its weights"),
        (lambda module: module.append(nn.Embedding(4, 4, sparse=True)), "sparse gradients"),
        (lambda module: module[0].weight.register_hook(lambda gradient: gradient), "a hook on a parameter"),
        (lambda module: module.register_buffer("mean", torch.ones(3).requires_grad_()), "buffers that are trained"),
        (lambda module: setattr(module[0], "_compiled_call_impl", print), "Linear is compiled"),
    ],
)
def test_models_that_cannot_be_recorded_right(change: Callable[[Any], object], why: str) -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    check_module(torch, module)

    change(module)

    with pytest.raises(Refused, match=why):
        check_module(torch, module)


class _Call:
    """One that is recorded at the second step."""

    def __init__(self, records: bool = True) -> None:
        self.records = records
        self.steps = 0
        self.why_not = message("graphs.forms_change")

    @property
    def is_recorded(self) -> bool:
        self.steps += 1
        return self.records and self.steps > 1


def _timed(after_s: float, records: bool = True, steps: int = 150, before_s: float = 0.01) -> Site:
    site, now, begun = site_for("graphs.model", True), 0.0, []

    def begin() -> Any:
        begun.append(True)
        return [_Call(records)]

    worth = GraphsWorth(site, begin, on_device=False, clock=lambda: now)
    for number in range(1, steps + 1):
        now += after_s if begun else before_s
        if site.in_force:
            worth.step(number)
    return site


def test_a_quicker_one_stays() -> None:
    site = _timed(0.005)

    assert site.in_force
    assert site.live == {"step_ms_before": pytest.approx(10), "step_ms_after": pytest.approx(5)}


def test_slow_steps_are_timed_sooner() -> None:
    """A trial counts from when it is known what they gain."""
    site = _timed(0.3, steps=warm_up_steps(["graphs.model"], 0.4), before_s=0.4)

    assert site.in_force
    assert site.live == {"step_ms_before": pytest.approx(400), "step_ms_after": pytest.approx(300)}


def test_a_slower_one_is_undone_after_a_second_look() -> None:
    site = _timed(0.011)

    assert (site.state, reason(site)) == ("reverted", "a step takes 11 ms replayed and 10 ms without")


def test_one_that_never_comes_to_be_recorded_is_undone() -> None:
    site = _timed(0.005, records=False)

    assert site.state == "reverted" and "nothing could be recorded in 60 steps: its arguments" in reason(site)

"""When CUDA graphs are worth a trial, which models are refused, and what it takes to stay in force."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from flatout.experiment.sizing import warm_up_steps
from flatout.records.message import message, verbatim
from flatout.records.report import Finding, GpuUse, PhaseShare, RunReport
from flatout.remedies.catalogue import known
from flatout.remedies.compute import graphed_model as graphs
from flatout.remedies.compute.graphed_model import GraphedCall, GraphsWorth, check_module
from flatout.remedies.model.module_calls import replace_call
from flatout.remedies.site import Refused, Site
from flatout.words import english
from tests.cases.evidence import on_gpu, run
from tests.unit.remedies.applied import applied, reason, site_for
from tests.unit.remedies.graphed_training import CpuTapes, both
from tests.unit.remedies.graphed_training import Net as GraphedNet
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
    assert site.live == {"step_ms_before": pytest.approx(10), "step_ms_after": pytest.approx(5), "settled_at": 0}


def test_slow_steps_are_timed_sooner() -> None:
    """A trial counts from when it is known what they gain."""
    site = _timed(0.3, steps=warm_up_steps(["graphs.model"], 0.4), before_s=0.4)

    assert site.in_force
    assert site.live == {"step_ms_before": pytest.approx(400), "step_ms_after": pytest.approx(300), "settled_at": 0}


def test_a_slower_one_is_undone_after_a_second_look() -> None:
    site = _timed(0.011)

    assert (site.state, reason(site)) == ("reverted", "a step takes 11 ms replayed and 10 ms without")


def test_one_that_never_comes_to_be_recorded_is_undone() -> None:
    site = _timed(0.005, records=False)

    assert site.state == "reverted" and "nothing could be recorded in 60 steps: its arguments" in reason(site)


# Calls that cannot be replayed, or no longer: the training goes on unharmed, and the reason is told.


ARGUMENTS = SimpleNamespace(shift=0.0)


class Reads(GraphedNet):
    """Depends on more than its arguments and weights."""

    factor = 1.0

    def __init__(self) -> None:
        super().__init__()
        ARGUMENTS.shift, Reads.factor = 0.0, 1.0

    def forward(self, x: Tensor) -> Any:
        return super().forward(x) * self.factor + ARGUMENTS.shift


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda model: model.body[0].requires_grad_(False), "frozen"),
        (lambda model: setattr(model, "head", nn.Linear(16, 2)), "head was replaced"),
        (lambda model: setattr(model.head, "weight", nn.Parameter(torch.ones(2, 16))), "weight was replaced"),
        (lambda model: setattr(model.head.weight, "data", torch.ones(2, 16)), "moved to other memory"),
        (lambda model: setattr(model, "scale", 0.5), "scale changed from 1.0 to 0.5"),
        (lambda model: setattr(ARGUMENTS, "shift", 0.5), "ARGUMENTS.shift changed from"),
        (lambda model: setattr(Reads, "factor", 0.5), "Reads.factor changed from"),
        (lambda model: setattr(model.body[3], "p", 0.1), "p changed from 0.5 to 0.1"),
        (lambda model: model.body[1].eval(), "training changed"),
        (lambda model: model.head.register_forward_hook(lambda *_: None), "hooks"),
    ],
)
def test_what_changes_later_ends_it(change: Callable[[Any], object], why: str) -> None:
    def train(model: Any, batches: list[Tensor]) -> list[float]:
        losses = []
        for number, x in enumerate(batches):
            if number == 10:
                torch.manual_seed(7)
                change(model)
            model.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            losses.append(loss.item())
        return losses

    site, _, _ = both(train, Reads)

    assert site.state == "reverted" and why in reason(site)


class Waits(GraphedNet):
    def forward(self, x: Tensor) -> Any:
        out = super().forward(x)
        return out if out.sum().item() > -1e9 else -out


class DrawsOnHost(GraphedNet):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x) if random.random() < 0.5 else super().forward(-x)


class Keeps(GraphedNet):
    def forward(self, x: Tensor) -> Any:
        self.inner = self.body(x)
        return self.head(self.inner)


class Appends(GraphedNet):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Any:
        self.seen.append(x)
        return super().forward(x)


OUTSIDE = nn.Parameter(torch.ones(2))


class UsesOther(GraphedNet):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x) * [OUTSIDE][0]


class Stamps(GraphedNet):
    def forward(self, x: Tensor) -> Any:
        return {"out": super().forward(x), "at": time.perf_counter()}


class InPlace(GraphedNet):
    def forward(self, x: Tensor) -> Any:
        x += 1
        return super().forward(x)


class Odd(GraphedNet):
    def forward(self, x: Tensor) -> Any:
        return type("Result", (), {"out": super().forward(x)})()


@pytest.mark.parametrize(
    ("kind", "state", "why"),
    [
        (Waits, "reverted", "not permitted when stream is capturing"),
        (DrawsOnHost, "refused", "random numbers on the host"),
        (Keeps, "refused", "leaves something behind"),
        (Appends, "refused", "leaves something behind"),
        (UsesOther, "refused", "not among its parameters"),
        (InPlace, "refused", "changes its arguments in place"),
        (Odd, "refused", "a Result"),
        (Stamps, "refused", "beside its tensors changes from call to call"),
    ],
)
def test_what_cannot_be_replayed_is_left_unharmed(kind: type[GraphedNet], state: str, why: str) -> None:
    def train(model: Any, batches: list[Tensor]) -> list[float]:
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        losses = []
        for x in batches:
            optimizer.zero_grad()
            out = model(x)
            out = out["out"] if isinstance(out, dict) else getattr(out, "out", out)
            loss = out.square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    site, _, model = both(train, kind, replays=False)

    assert (site.state, why in reason(site)) == (state, True), reason(site)
    assert "_compiled_call_impl" not in vars(model)


BRANCH = {"sign": [1.0]}


class Branches(GraphedNet):
    """Reads something that no look at it can find."""

    def forward(self, x: Tensor) -> Any:
        return super().forward(x) * _sign(BRANCH)


def _sign(values: Any) -> Any:
    return values["sign"][0]


def test_a_branch_that_goes_another_way_is_seen_at_the_next_comparison() -> None:
    torch.manual_seed(0)
    model, site = Branches(), site_for("graphs.model", True)
    call = GraphedCall(site, model, CpuTapes())
    replace_call(site, model, call)
    BRANCH["sign"] = [1.0]

    for number in range(30):
        if number == 15:
            BRANCH["sign"][0] = -1.0
        model(torch.randn(16, 8)).square().mean().backward()

    assert site.state == "reverted" and "a replay differs from the call itself" in reason(site)


def test_too_little_memory_is_told() -> None:
    model, site = GraphedNet(), site_for("graphs.model", True)
    tapes = CpuTapes(room_bytes=0)
    tapes.held_bytes = iter([0, 1 << 30] * 9).__next__  # type: ignore[method-assign]
    replace_call(site, model, GraphedCall(site, model, tapes))

    for _ in range(6):
        model(torch.randn(16, 8)).sum().backward()

    assert site.state == "refused" and "1024 MiB" in reason(site)

"""Compiling in place: what fails is run without, and nothing of the model's own changes."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from flatout.remedies.compute import worth as compile_worth
from flatout.remedies.compute.compiled_model import CompiledCall
from flatout.remedies.compute.worth import CompileWorth, graph_breaks
from flatout.remedies.model.module_calls import replace_call
from flatout.remedies.site import Site
from tests.unit.remedies.applied import applied, reason, site_for
from tests.unit.remedies.training import Net, steps_told_to, train


def _net(kind: type[Net] = Net) -> Net:
    torch.manual_seed(0)
    return kind()


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler's front end alone: its back end takes many seconds here, and has a test in a process of its own."""
    real: Any = torch.compile
    monkeypatch.setattr(torch, "compile", lambda call, mode: real(call, backend="aot_eager"))


@pytest.mark.usefixtures("backend")
def test_compiled_after_a_look_and_a_baseline_and_undone() -> None:
    model = _net()
    names = list(model.state_dict())

    with applied("compile.model", "default") as site:
        train(site, model, 32)
        compiled = "_compiled_call_impl" in vars(model)
        twin = copy.deepcopy(model)
        assert list(model.state_dict()) == names and pickle.dumps(model)

    assert compiled and site.live["since_step"] == 30
    assert "_compiled_call_impl" not in vars(twin)
    assert "_compiled_call_impl" not in vars(model) and model._compiled_call_impl is None


@pytest.mark.usefixtures("backend")
def test_a_class_that_another_remedy_wraps_breaks_no_graph() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 1))
    torch._dynamo.reset()
    before = graph_breaks()

    with applied("precision.bf16") as site, applied("compile.model", "default") as other:
        with steps_told_to(other):
            train(site, model, 34)
        assert "_compiled_call_impl" in vars(model)

    assert graph_breaks() == before


@pytest.mark.usefixtures("backend")
def test_a_container_of_torchs_own_is_one_graph() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 1))
    torch._dynamo.reset()
    counted: Any = torch._dynamo.utils.counters
    counted.clear()

    with applied("compile.model", "default") as site:
        train(site, model, 34)

    assert counted["stats"]["unique_graphs"] == 1
    assert counted["stats"]["calls_captured"] >= 4


def _fails_to_compile(call: Any, mode: Any = None) -> Any:
    def compiled(*args: Any, **kwargs: Any) -> Any:
        torch.rand(3)
        raise RuntimeError("no compiler found")

    return compiled


class _Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        raise RuntimeError("no kernel for this")


def _fails_in_backward(call: Any, mode: Any = None) -> Any:
    return lambda *args, **kwargs: _Fails.apply(call(*args, **kwargs))


@pytest.mark.parametrize(
    ("compiler", "why"), [(_fails_to_compile, "no compiler found"), (_fails_in_backward, "no kernel for this")]
)
def test_what_cannot_be_compiled_runs_without(monkeypatch: pytest.MonkeyPatch, compiler: Any, why: str) -> None:
    def run(site: Site, compiling: bool) -> list[float]:
        model = nn.Sequential(Net(), nn.Dropout(0.5))
        torch.manual_seed(3)
        if compiling:
            replace_call(site, model, CompiledCall(site, model, "default"))
        return train(site, model)

    torch.manual_seed(0)
    plain = run(site_for("compile.model", "default"), compiling=False)
    monkeypatch.setattr(torch, "compile", compiler)
    site = site_for("compile.model", "default")
    torch.manual_seed(0)

    losses = run(site, compiling=True)

    assert losses == plain
    assert site.state == "reverted" and why in reason(site)


@pytest.mark.usefixtures("backend")
def test_the_scripts_own_compiling_is_left_alone() -> None:
    model = _net()
    model._compiled_call_impl = model._call_impl

    with applied("compile.model", "default") as site:
        train(site, model, 6)

        assert (site.state, reason(site)) == ("refused", "the script compiles the model itself")


def test_where_it_is_forbidden_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")

    with pytest.raises(Exception, match="TORCHDYNAMO_DISABLE forbids it"), applied("compile.model", "default"):
        pass


class _Remembers(Net):
    """Adds to the loss what it has gathered by the way, as mixtures of experts do."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.side_losses: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.side_losses.append(0.1 * self.head.weight.pow(2).mean())
        return super().forward(x)


@pytest.mark.usefixtures("backend")
def test_the_call_that_tries_it_out_leaves_nothing_behind() -> None:
    def trained(site: Site) -> tuple[list[float], int, int]:
        model: Any = _net(_Remembers)

        def loss_of(out: Tensor, y: Tensor) -> Tensor:
            gathered = torch.stack(model.side_losses).sum()
            model.side_losses.clear()
            return nn.functional.mse_loss(out, y) + gathered

        return train(site, model, 32, loss_of=loss_of), model.calls, len(model.seen)

    plain = trained(site_for("compile.model", "default"))
    with applied("compile.model", "default") as site:
        compiled = trained(site)

    assert site.live["since_step"] == 30 and not reason(site)
    assert compiled[1:] == plain[1:]
    assert compiled[0] == pytest.approx(plain[0], rel=1e-4)


# A compiled model stays only if it is quicker, and not if it is compiled again and again.


class Run:
    """Steps of known length, on a clock of its own."""

    def __init__(self, compiled_s: float) -> None:
        self.site: Site = site_for("compile.model", "default")
        self.compiled_s = compiled_s
        self.is_compiled = False
        self.now = 0.0
        self.compilations = 0
        self.steps = 0
        self.worth = CompileWorth(self.site, self._begin, on_device=False, clock=lambda: self.now)

    def _begin(self) -> None:
        self.is_compiled = True

    def take(self, steps: int, length_s: float | None = None) -> None:
        for _ in range(steps):
            self.steps += 1
            if self.is_compiled and self.compilations == 0:
                self.compilations, self.now = 1, self.now + 30.0
            self.now += length_s or (self.compiled_s if self.is_compiled else 0.1)
            if self.site.in_force:
                self.worth.step(self.steps)


def _run(monkeypatch: pytest.MonkeyPatch, compiled_s: float) -> Run:
    run = Run(compiled_s)
    monkeypatch.setattr(compile_worth, "compilations", lambda: run.compilations)
    return run


def test_twenty_steps_are_timed_before_it_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run(monkeypatch, 0.05)

    run.take(25)
    assert not run.is_compiled
    run.take(1)

    assert run.is_compiled


def test_a_quicker_one_stays_and_says_when_it_is_paid_back(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run(monkeypatch, 0.05)

    run.take(100)

    assert run.site.in_force
    assert run.site.live["step_ms_before"] == pytest.approx(100)
    assert run.site.live["step_ms_after"] == pytest.approx(50)
    assert run.site.live["compile_s"] == pytest.approx(30)
    assert run.site.live["paid_back_after_steps"] == 600


def test_a_slower_one_is_undone_after_a_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run(monkeypatch, 0.12)

    run.take(120)

    assert run.site.state == "reverted"
    assert reason(run.site) == "a step takes 120 ms compiled and 100 ms without"


def test_a_pause_in_one_block_does_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run(monkeypatch, 0.05)

    run.take(38)
    run.take(1, length_s=60.0)
    run.take(60)

    assert run.site.in_force and run.site.live["step_ms_after"] == pytest.approx(50)


def test_one_that_never_settles_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run(monkeypatch, 0.05)

    for _ in range(140):
        run.take(1)
        run.compilations += run.is_compiled

    assert run.site.state == "reverted" and "still compiling after 100 steps" in reason(run.site)


def test_a_storm_later_on_is_the_end_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run(monkeypatch, 0.05)
    run.take(100)

    run.compilations += 8
    run.take(100)
    assert run.site.in_force and run.site.live["recompiled"] == 8
    run.compilations += 1
    run.take(100)

    assert run.site.state == "reverted" and "compiled 9 times more" in reason(run.site)

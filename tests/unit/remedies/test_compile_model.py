"""Compiling in place: what fails is run without, and nothing of the model's own changes."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from flatout.remedies.compute.compiled_model import CompiledCall
from flatout.remedies.compute.worth import graph_breaks
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

"""Autocast around the modules of the step, and around nothing else."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.unit.remedies.applied import applied, live_in_english, reason, site_for
from tests.unit.remedies.training import Net, steps_told_to, train

# A CPU without bf16 of its own says so once.
pytestmark = pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")


def _net() -> Net:
    torch.manual_seed(0)
    return Net()


def test_the_model_computes_in_bf16_and_answers_in_float32() -> None:
    model = _net()
    outputs = []

    with applied("precision.bf16") as site:
        train(site, model, loss_of=lambda out, y: (outputs.append(out.dtype), nn.functional.mse_loss(out, y))[1])

    # A few steps to look, then it begins.
    assert model.seen == [torch.float32] * 4 + [torch.bfloat16] * 4
    assert set(outputs) == {torch.float32}
    assert site.live == {"modules": ["Net"], "dtype": "bfloat16", "device": "cpu", "since_step": 4}


def test_losses_go_the_same_way() -> None:
    plain = train(site_for("precision.bf16", True), _net(), 40)

    with applied("precision.bf16") as site:
        rounded = train(site, _net(), 40)

    assert rounded[:4] == plain[:4]
    assert rounded != plain
    assert rounded == pytest.approx(plain, rel=0.1, abs=0.02)


def test_reverted_in_the_middle_all_is_as_it_was() -> None:
    model, call = _net(), nn.Module.__call__

    with applied("precision.bf16") as site:
        train(site, model, 6)
        site.revert()
        train(site, model, 2)

    assert model.seen[-2:] == [torch.float32] * 2
    assert "__call__" not in Net.__dict__ and nn.Module.__call__ is call


def test_copies_pickles_and_names_are_those_of_the_model() -> None:
    model = _net()
    names = list(model.state_dict())

    with applied("precision.bf16") as site:
        train(site, model, 6)
        twin = copy.deepcopy(model)
        again = pickle.loads(pickle.dumps(model))
        twin(torch.ones(1, 8))

    assert list(model.state_dict()) == list(again.state_dict()) == names
    assert vars(again).keys() == vars(Net()).keys()
    # A moving average of the weights is evaluated as the model is.
    assert twin.seen[-1] is torch.bfloat16


def test_hooks_still_fire() -> None:
    model, fired = _net(), []
    model.register_forward_hook(lambda module, args, out: fired.append("after"))
    model.register_forward_pre_hook(lambda module, args: fired.append("before"))

    with applied("precision.bf16") as site:
        train(site, model, 6)

    assert fired == ["before", "after"] * 6


def test_evaluation_runs_as_training_does() -> None:
    model = _net()

    with applied("precision.bf16") as site:
        train(site, model, 5)
        model.eval()
        with torch.no_grad():
            out = model(torch.ones(1, 8))

    assert model.seen[-1] is torch.bfloat16 and out.dtype is torch.float32


def test_both_networks_of_a_pair_are_run_so() -> None:
    maker, judge = nn.Sequential(nn.Linear(4, 8)), Net()
    first, second = (torch.optim.SGD(one.parameters(), 0.01) for one in (maker, judge))

    with applied("precision.bf16") as site, steps_told_to(site):
        for _ in range(4):
            judge(maker(torch.ones(2, 4)).detach()).sum().backward()
            second.step()
            judge(maker(torch.ones(2, 4))).sum().backward()
            first.step()

    assert sorted(site.live["modules"]) == ["Net", "Sequential"]  # type: ignore[call-overload]
    assert judge.seen[-1] is torch.bfloat16


def test_a_teacher_without_gradients_is_run_so_too() -> None:
    teacher, student = _net(), _net()

    def loss_of(out: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            target = teacher(torch.ones(16, 8))
        return nn.functional.mse_loss(out, target)

    with applied("precision.bf16") as site:
        train(site, student, 6, loss_of=loss_of)

    assert teacher.seen[-1] is torch.bfloat16


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return 2 * grad


class _WithFunction(Net):
    def forward(self, x: Tensor) -> Tensor:
        return _Doubled.apply(super().forward(x))


class _WithAutocast(Net):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(x).float()


def _around(autocast: Callable[[], Any]) -> Any:
    model = Net()

    def call(self: Any, x: Tensor) -> Tensor:
        with autocast():
            return model(x).float()

    return type("Around", (), {"__call__": call, "parameters": model.parameters, "model": model})()


_OFF = SimpleNamespace(amp=False)
_MEANT = {
    "named": lambda: torch.autocast("cpu", torch.bfloat16, enabled=False),
    "in its place": lambda: torch.autocast("cpu", torch.bfloat16, False),
    "of cuda": lambda: torch.cuda.amp.autocast(False),
    "not to be seen": lambda: torch.autocast("cpu", **vars(SimpleNamespace(enabled=False))),
    "made of text": lambda: eval("torch.autocast('cpu', enabled=_OFF.amp)"),
}
_SWITCHED = {
    "named": lambda: torch.autocast("cpu", torch.float16, enabled=_OFF.amp),
    "over lines": lambda: torch.autocast(
        "cpu",
        enabled=(
            _OFF.amp and "é" != "ü"  # an expression
        ),
    ),
    "in its place": lambda: torch.autocast("cpu", torch.bfloat16, _OFF.amp),
    "of cpu": lambda: torch.cpu.amp.autocast(_OFF.amp),
}


class _Loose:
    """Calls its layers one by one."""

    def __init__(self) -> None:
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(12)])
        self.parameters = self.layers.parameters

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x[:, :1]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_WithAutocast, "the script sets it itself: it uses autocast"),
        (lambda: _around(lambda: torch.autocast("cpu")), "the script sets it itself: it uses autocast"),
        *((lambda off=off: _around(off), "an autocast that is switched off") for off in _MEANT.values()),
        (lambda: Net().to(torch.bfloat16), "has weights in bfloat16"),
        (_WithFunction, "_Doubled in _WithFunction"),
        (_Loose, "12 modules one by one"),
    ],
    ids=["autocast inside", "autocast around", *_MEANT, "half weights", "own function", "no root"],
)
def test_refused(make: Any, why: str) -> None:
    model = make()
    of_half = next(iter(model.parameters())).dtype is torch.bfloat16
    loss_of: Any = (lambda out, y: out.float().pow(2).mean()) if of_half else nn.functional.mse_loss

    with applied("precision.bf16") as site:
        cast = model if not of_half else _Cast(model)
        train(site, cast, 6, loss_of=loss_of)

        assert site.state == "refused" and why in reason(site), reason(site)
    assert nn.Module.__call__.__qualname__ == "Module._wrapped_call_impl"


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("autocast", _SWITCHED.values(), ids=_SWITCHED)
def test_a_switch_that_nobody_turned_is_no_choice(autocast: Callable[[], Any]) -> None:
    around = _around(autocast)

    with applied("precision.bf16") as site:
        train(site, around, 6)

        assert site.in_force and "switched off" in str(live_in_english(site)["autocast"])
        assert around.model.seen[-1] is torch.bfloat16
    assert torch.amp.autocast_mode.autocast.__init__.__qualname__ == "autocast.__init__"


def test_source_that_cannot_be_read_is_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> list[str]:
        return ["\ud800 is no character"] * 1000

    monkeypatch.setattr("linecache.getlines", broken)
    with applied("precision.bf16") as site:
        train(site, _around(_SWITCHED["named"]), 6)

        assert site.state == "refused" and "use its own option" in reason(site)


def test_with_scaled_gradients_a_switch_is_left_to_the_script() -> None:
    with applied("precision.fp16") as site:
        train(site, _around(_SWITCHED["named"]), 6)

        assert site.state == "refused" and "use its own option" in reason(site)


class _Cast:
    def __init__(self, model: Any) -> None:
        self.model = model
        self.parameters = model.parameters

    def __call__(self, x: Tensor) -> Any:
        return self.model(x.bfloat16())


class _Guarded(Net):
    """Keeps a part in float32 under any autocast, as many public models do."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            x = x.float() * 2
        return super().forward(x)


def test_a_part_kept_in_float32_is_no_reason_to_refuse() -> None:
    model = _Guarded()

    with applied("precision.bf16") as site:
        train(site, model, 6)

        assert site.in_force and model.seen[-1] is torch.bfloat16


class _Strict(Net):
    """Works in float32 only, and draws random numbers before it fails."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        noise = torch.rand(())
        room = torch.zeros(16, 16)
        inner = self.body(x)
        room.index_put_((torch.arange(16),), inner)
        out: Tensor = self.head(room) + 0.01 * noise
        return out


def test_a_model_that_fails_under_it_is_run_again_without() -> None:
    torch.manual_seed(1)
    plain = train(site_for("precision.bf16", True), _Strict())
    torch.manual_seed(1)
    model = _Strict()

    with applied("precision.bf16") as site:
        losses = train(site, model)

        assert site.state == "reverted" and "failed under it (RuntimeError: Index put" in reason(site)
    assert losses == plain
    assert model.calls == 8


def test_the_scripts_own_error_is_its_own() -> None:
    class Broken(Net):
        def forward(self, x: Tensor) -> Tensor:
            if len(self.seen) == 6:
                raise RuntimeError("no more")
            return super().forward(x)

    with applied("precision.bf16") as site:
        with pytest.raises(RuntimeError, match="no more"):
            train(site, Broken())

        assert site.in_force


def test_a_loss_that_stays_infinite_gives_it_up() -> None:
    model = _net()

    def breaks() -> None:
        if len(model.seen) == 6:
            with torch.no_grad():
                model.head.weight.fill_(float("nan"))

    with applied("precision.bf16") as site:
        train(site, model, 14, between=breaks)

        assert site.state == "reverted" and "no longer finite" in reason(site)
    assert model.seen[-1] is torch.float32


def test_one_infinite_loss_does_not() -> None:
    model = _net()

    def loss_of(out: Tensor, y: Tensor) -> Tensor:
        return nn.functional.mse_loss(out, y) + (float("inf") if len(model.seen) == 6 else 0.0)

    with applied("precision.bf16") as site:
        train(site, model, 14, loss_of=loss_of)

        assert site.in_force


def test_what_is_traced_has_no_casts_in_it() -> None:
    model = _net()

    with applied("precision.bf16") as site:
        train(site, model, 6)
        traced = torch.jit.trace(model, torch.ones(1, 8), check_trace=False)

    assert "bfloat16" not in str(traced.graph) and traced(torch.ones(1, 8)).dtype is torch.float32

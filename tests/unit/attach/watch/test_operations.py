"""The window over the operations of one step: what it keeps of nested ones, and when it is opened."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from flatout.attach.recorder import Output
from flatout.attach.tracer import OPTIMIZER_BEGINS, OPTIMIZER_ENDS, REQUEST_NO_GRAD, clock
from flatout.attach.watch.operations import Operation, OperationWatch, OperationWindow
from tests.unit.attach.contexts import make_context


def record(step: Callable[[], object], *, with_memory: bool = False) -> list[Operation]:
    window = OperationWindow(torch, "cpu", with_memory)
    window.open()
    step()
    return window.close()


def _names(operations: list[Operation], phase: str = "forward") -> list[str]:
    return [operation.name.removeprefix("aten::") for operation in operations if operation.phase == phase]


def test_of_nested_operations_the_one_with_a_kernel_is_kept() -> None:
    x = torch.randn(4, 6, 8)
    layers = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU())

    # `linear`, `layer_norm` and what they call within are no kernels; neither are views.
    assert _names(record(lambda: layers(x).transpose(1, 2).reshape(4, 96)[:, :8])) == [
        "addmm",
        "native_layer_norm",
        "gelu",
        "copy_",
    ]


def test_views_and_allocations_are_work_for_nobody() -> None:
    x = torch.randn(4, 6)

    assert record(lambda: [x.view(24).t(), x[1:].unsqueeze(0), x.expand(2, 4, 6), x.to(x.dtype), torch.empty(9)]) == []


def test_a_convolution_is_one_operation_with_its_numbers() -> None:
    x, layer = torch.randn(2, 8, 16, 16), nn.Conv2d(8, 8, 3, stride=2, padding=1)
    operations = record(lambda: layer(x).sum().backward())

    (convolved,) = [operation for operation in operations if operation.name == "aten::convolution"]
    assert convolved.numbers[3:5] == ([2, 2], [1, 1])
    assert [given.sizes for given in convolved.given] == [(2, 8, 16, 16), (8, 8, 3, 3), (8,)]
    (back,) = [operation for operation in operations if operation.name == "aten::convolution_backward"]
    assert back.phase == "backward" and back.numbers[-1] == [False, True, True]


def test_operations_belong_to_their_pass() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    x = torch.randn(4, 8)

    def step() -> None:
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()

    step()
    operations = record(step)

    assert _names(operations)[:2] == ["addmm", "relu"]
    assert "mm" in _names(operations, "backward") and "threshold_backward" in _names(operations, "backward")
    assert {operation.phase for operation in operations} == {"forward", "backward", "optimizer"}


def test_with_memory_a_result_can_be_followed() -> None:
    x = torch.randn(64, 64)
    tanh, mul, _ = record(lambda: (torch.tanh(x) * x).add_(x), with_memory=True)

    ((made, size),) = tanh.made
    assert size == 64 * 64 * 4
    assert [given.memory for given in mul.given] == [made, tanh.given[0].memory]


def test_what_is_freed_within_an_operation_is_not_made_by_it() -> None:
    x = torch.randn(32, 32)
    (operation,) = record(lambda: nn.functional.softmax(x, 0), with_memory=True)

    assert sum(size for _, size in operation.made) == 32 * 32 * 4


_QUIET = """
import os
import torch
from flatout.attach.watch.operations import OperationWindow
before = dict(os.environ)
window = OperationWindow(torch, "cpu")
window.open()
torch.ones(3) + 1
assert window.close() and dict(os.environ) == before
"""


def test_the_profiler_is_quiet_and_the_environment_as_it_was() -> None:
    """Where nobody has set it up before: how much it tells is decided once in a process."""
    done = subprocess.run([sys.executable, "-c", _QUIET], capture_output=True, text=True, check=False, timeout=120)

    assert (done.returncode, done.stderr) == (0, "")
    assert not torch.autograd._profiler_enabled()


class Texts(Output):
    def __init__(self) -> None:
        self.written: dict[str, list[Any]] = {}

    def text(self, what: str, value: object) -> None:
        self.written.setdefault(what, []).append(value)


class Training:
    """Steps of a small model, as the session tells a watcher of them."""

    def __init__(self, **settings: object) -> None:
        self.texts = Texts()
        self.context = make_context(lambda: self.texts)
        self.context.settings = {"operations_of": "cpu", "operations_budget": 1.0, **settings}
        self.watch = OperationWatch(self.context)
        self.index = 0
        self.weight = torch.ones(8, requires_grad=True)

    def step(self, *more: int) -> None:
        (self.weight * 2).sum().backward()
        self.watch.at_step_end([*more, OPTIMIZER_ENDS], self.index, clock())
        self.index += 1

    def steps(self, count: int) -> list[dict[str, Any]]:
        for _ in range(count):
            self.step()
        return self.texts.written.get("operations", [])


def test_one_step_is_recorded_after_the_first_ones() -> None:
    (window,) = Training().steps(40)

    assert window["index"] >= 8 and window["steps"] == 1 and window["with_memory"] is False
    names = Counter(window["names"][row[0]] for row in window["rows"])
    assert names["aten::mul"] == 2 and names["aten::sum"] == 1


def test_none_where_it_would_cost_too_much_of_the_run() -> None:
    assert Training(operations_budget=0.0).steps(40) == []


def test_none_without_a_gpu() -> None:
    assert Training(operations_of="cuda").steps(40) == []


def test_a_step_with_an_evaluation_in_it_is_not_the_one() -> None:
    training = Training()
    training.steps(9)
    assert torch.autograd._profiler_enabled()
    training.step(REQUEST_NO_GRAD)

    assert not torch.autograd._profiler_enabled() and "operations" not in training.texts.written
    assert len(training.steps(20)) == 1


def test_optimizers_that_take_turns_are_one_step() -> None:
    training = Training()
    training.context.phases.leader = 1
    for index in range(20):
        for number in (1, 2):
            (training.weight * 2).sum().backward()
            training.watch.at_step_end([number << 5 | OPTIMIZER_BEGINS, OPTIMIZER_ENDS], index, clock())
    (window,) = training.texts.written["operations"]

    names = Counter(window["names"][row[0]] for row in window["rows"])
    assert names["aten::sum"] == 2 * window["steps"]


def test_it_waits_for_a_profiler_of_the_scripts_own() -> None:
    training = Training()
    with torch.autograd.profiler.profile():
        assert training.steps(20) == []
    assert len(training.steps(20)) == 1


def test_nothing_is_left_open_at_the_end() -> None:
    training = Training()
    training.steps(9)
    assert torch.autograd._profiler_enabled()
    training.watch.at_stop()

    assert not torch.autograd._profiler_enabled()


def test_a_torch_without_these_names_is_watched_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training()
    monkeypatch.delattr(torch._C._profiler, "ProfilerConfig")

    assert training.steps(30) == []
    assert not torch.autograd._profiler_enabled()

"""One sampled step, in this process: whose nodes are whose, and nothing is left behind."""

from __future__ import annotations

import gc
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from flatout.attach import tracer as ev
from flatout.attach.tracer import Tracer, clock
from flatout.attach.watch.link_calls import ModuleCalls
from flatout.attach.watch.link_drops import Drops
from flatout.attach.watch.link_sample import NOWHERE, LinkSample, Table, Tables, describe_tables

Tell = Callable[..., None]


@pytest.fixture(autouse=True)
def no_other_trace() -> Iterator[None]:
    """Coverage and debuggers trace as well: a window keeps away from them."""
    before = sys.gettrace()
    sys.settrace(None)
    yield
    assert sys.gettrace() is None
    sys.settrace(before)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)
        for _ in range(3):
            x = torch.tanh(x * 2)
        return x.sum()


def make_sample(limit_s: float = 10.0) -> tuple[LinkSample, Tracer]:
    tracer = Tracer(lambda codes, moments: None)
    return LinkSample(torch, tracer, 1, limit_s, 0.0, ModuleCalls(torch, dict, {}), Drops(torch, [])), tracer


def backward(sample: LinkSample, loss: torch.Tensor, **more: Any) -> None:
    """As the patch does."""
    sample.backward_begins(loss, more.get("create_graph", False))
    loss.backward(**more)
    sample.backward_ends()


def nodes_by_line(sample: LinkSample) -> dict[tuple[str, bool], int]:
    found: dict[tuple[str, bool], int] = {}
    for key, line in sample.lines.items():
        code = sample.forward.code_of(key)
        if line.ops:
            place = "" if code is None else f"{code.co_name}+{key[1] - code.co_firstlineno}"
            found[place, key[2]] = found.get((place, key[2]), 0) + line.ops
    return found


def train(sample: LinkSample, model: nn.Module, x: torch.Tensor) -> None:
    sample.begin()
    loss = model(x) * 2
    backward(sample, loss)
    sample.end()


def test_nodes_belong_to_the_line_that_made_them() -> None:
    sample, _ = make_sample()

    train(sample, Model(), torch.randn(2, 4))

    assert not sample.why_not
    assert nodes_by_line(sample) == {
        ("forward+1", True): 2,  # the transposed weight, and the product
        ("forward+3", True): 6,
        ("forward+4", True): 1,
        ("train+2", False): 1,
    }
    assert all(line.forward_s >= 0 and line.backward_s >= 0 for line in sample.lines.values())
    looped = next(line for key, line in sample.lines.items() if line.ops == 6)
    assert looped.calls == 3


def test_nodes_from_before_the_window_are_of_no_line() -> None:
    sample, _ = make_sample()
    early = torch.ones(2, requires_grad=True) * 2
    sample.begin()
    loss = early.sum()
    backward(sample, loss)
    sample.end()

    assert sample.lines[NOWHERE].ops == 1


def test_nothing_is_left_behind() -> None:
    sample, _ = make_sample()
    model, x = Model(), torch.randn(2, 4)
    sample.begin()
    loss = model(x)
    backward(sample, loss, retain_graph=True)
    sample.end()
    seen_s = {key: line.backward_s for key, line in sample.lines.items()}
    loss.backward()

    assert {key: line.backward_s for key, line in sample.lines.items()} == seen_s, "a hook is still there"
    assert sys._getframe().f_trace is None
    result = weakref.ref(loss)
    del loss
    gc.collect()
    assert result() is None, "a tensor is kept"


def test_a_debugger_that_comes_meanwhile_is_left_alone() -> None:
    sample, _ = make_sample()

    def debugger(frame: Any, event: str, arg: Any) -> None:
        return None

    sample.begin()
    sys.settrace(debugger)
    loss = torch.ones(1, requires_grad=True).sum()
    backward(sample, loss)
    sample.end()
    try:
        assert sys.gettrace() is debugger
        assert sample.why_not == "traced"
    finally:
        sys.settrace(None)


def test_it_ends_when_it_costs_too_much() -> None:
    sample, _ = make_sample(limit_s=0.0)

    train(sample, Model(), torch.randn(2, 4))

    assert sample.why_not == "too_dear"


def test_a_failure_of_ours_does_not_reach_the_script() -> None:
    sample, _ = make_sample()

    def fail() -> int:
        raise ZeroDivisionError

    sample.begin()
    sample.forward._sequence = fail
    loss = Model()(torch.randn(2, 4))
    backward(sample, loss)
    sample.end()

    assert sample.why_not.startswith("failed: ZeroDivisionError")


@pytest.mark.parametrize(("create_graph", "why"), [(True, "double_backward"), (False, "")])
def test_a_gradient_of_a_gradient_is_left_alone(create_graph: bool, why: str) -> None:
    sample, _ = make_sample()
    sample.begin()
    x = torch.ones(2, requires_grad=True)
    loss = (x**2).sum()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of it, once in a process
        backward(sample, loss, create_graph=create_graph)
    sample.end()

    assert sample.why_not == why


@pytest.mark.parametrize(
    ("events", "is_forward"),
    [
        ((), True),
        ((ev.ENTER_GC, ev.LEAVE), False),
        ((ev.ENTER_H2D, ev.LEAVE), False),
        ((ev.ARRIVED,), False),
        ((ev.OPTIMIZER_BEGINS,), False),
        ((ev.ENTER_CLOSURE,), False),
    ],
)
def test_what_is_no_forward_is_not_counted(events: tuple[int, ...], is_forward: bool) -> None:
    """An event at the start of a wait, and one at its end: pauses that are carved out, or what comes before a step."""
    sample, tracer = make_sample()
    first, last = (events[0], events[-1]) if len(events) == 2 else (None, events[0] if events else None)

    def note(event: int | None) -> None:
        if event is not None:
            tracer.log(event)
            tracer.at(clock())

    sample.begin()
    loss = torch.ones(2, requires_grad=True).sum()
    note(first)
    time.sleep(0.02)
    note(last)
    loss = loss * 2
    backward(sample, loss)
    sample.end()

    forward_s = sum(line.forward_s for line in sample.lines.values())
    assert not sample.why_not
    assert (forward_s > 0.01) == is_forward


# Which large weights of a real graph have a dense gradient of which few rows are not zero.


ROWS, WIDTH = 20_000, 16  # 1.3 MB
IDS = torch.arange(6).view(2, 3)
KEY = (1, 2, True)


def looked_at(*losses: Any) -> Tables:
    """After a walk over the graph of each loss, as a window does it."""
    tables = Tables()
    for loss in losses:
        nodes, waiting, seen = [], [loss.grad_fn], set()
        while waiting:
            node = waiting.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if node.name().endswith("AccumulateGrad"):
                tables.meet(node)
                continue
            nodes.append((node._sequence_nr(), node))
            waiting += [following for following, _ in node.next_functions]
        tables.find(nodes, lambda number: KEY)
    return tables


def weight() -> nn.Parameter:
    return nn.Parameter(torch.ones(ROWS, WIDTH))


PICKED: dict[str, Callable[[Any], Any]] = {
    "embedding": lambda table: F.embedding(IDS, table),
    "index": lambda table: table[IDS],
    "index_select": lambda table: table.index_select(0, IDS.flatten()),
    "embedding_bag": lambda table: F.embedding_bag(IDS, table),
}


@pytest.mark.parametrize("name", PICKED)
def test_rows_that_are_picked_are_counted(name: str) -> None:
    (table,) = looked_at(PICKED[name](weight()).sum()).told()

    assert (table.uses, table.picked, table.key) == (1, 6 * WIDTH, KEY)


def test_uses_and_passes_of_a_step_add_up() -> None:
    table = weight()

    tables = looked_at((table[IDS] * F.embedding(IDS, table)).sum(), table[IDS].sum())

    (told,) = tables.told()
    assert (told.uses, told.picked) == (3, 18 * WIDTH)


def test_nothing_is_told_of_weights_that_are_sparse_used_whole_or_small() -> None:
    tied, sparse, small = weight(), weight(), nn.Parameter(torch.ones(8, WIDTH))
    results = [
        F.embedding(IDS, tied) @ tied.t(),
        F.embedding(IDS, sparse, sparse=True),
        F.embedding(IDS, small),
        F.linear(torch.ones(1, WIDTH), weight()),
    ]

    assert looked_at(sum(result.sum() for result in results)).told() == []


def test_no_weight_is_kept() -> None:
    table = weight()
    known = weakref.ref(table)
    tables = looked_at(table[IDS].sum())

    del table
    gc.collect()

    assert known() is None
    assert list(describe_tables(tables.told(), [], [])) == []


def test_the_optimizer_and_the_line_that_made_it_are_told() -> None:
    table, rest = nn.Embedding(ROWS, WIDTH), nn.Linear(4, 4)
    optimizers = [
        torch.optim.Adam(rest.parameters()),
        torch.optim.SGD(table.parameters(), lr=0.1, momentum=0.9),
    ]
    made = [(weakref.ref(rest), ("a.py", 1)), (weakref.ref(table), ("b.py", 2))]
    told: list[Table] = looked_at(table(IDS).sum()).told()

    ((key, described),) = describe_tables(told, [weakref.ref(optimizer) for optimizer in optimizers], made)

    assert key == KEY
    assert described == {
        "made_at": ("b.py", 2),
        "elements": ROWS * WIDTH,
        "picked": 6 * WIDTH,
        "uses": 1,
        "bytes": 4 * ROWS * WIDTH,
        "all_bytes": 4 * (ROWS * WIDTH + 20),
        "backward_ms": 0.0,
        "optimizer": "torch.optim.sgd.SGD",
        "fused": False,
        "decays": True,
    }


def test_gradients_of_gradients_are_of_the_line_that_asks_for_them() -> None:
    sample, tracer = make_sample()
    layer, x = nn.Linear(4, 1), torch.randn(64, 4, requires_grad=True)

    def slope(y: torch.Tensor) -> torch.Tensor:
        tracer.log(ev.ENTER_GRAD)
        tracer.at(clock())
        time.sleep(0.01)
        (found,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        tracer.log(ev.LEAVE)
        tracer.at(clock())
        return found

    sample.begin()
    y = layer(x).tanh()
    loss = slope(y).square().mean()  # the line that asks
    backward(sample, loss)
    sample.end()

    assert not sample.why_not
    asked = [
        line for key, line in sample.lines.items() if (code := sample.forward.code_of(key)) and code is slope.__code__
    ]
    assert sum(line.ops for line in asked) > 0
    assert sum(line.backward_s for line in asked) >= 0.01
    assert sum(line.forward_s for line in asked) < 0.005


def ops_of(sample: LinkSample, model: Model) -> dict[int, int]:
    sample.step_goes_on()
    loss = model(torch.randn(2, 4))
    backward(sample, loss)
    sample.end()
    return {key[1]: line.ops for key, line in sample.lines.items() if line.ops}


def test_of_lines_only_it_sees_the_same_nodes_for_less() -> None:
    model = Model()
    whole, _ = make_sample()
    whole.begin()
    seen = ops_of(whole, model)
    lines, _ = make_sample()
    lines.begin(lines_only=True)

    assert ops_of(lines, model) == seen
    assert (whole.without, lines.without) == ([], ["calls", "nodes"])
    assert not lines.forward.extra_s
    assert not lines.backward.accounts_s
    assert 0 < whole.lines_cost_s < whole.cost_s
    assert lines.lines_cost_s == lines.cost_s


def test_accounts_that_would_cost_more_than_is_left_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flatout.attach.watch.link_sample._ACCOUNTS", 1e9)
    sample, _ = make_sample()
    sample.begin()
    seen = ops_of(sample, Model())

    assert not sample.why_not
    assert sample.without == ["nodes"]
    assert sum(seen.values()) == sample.backward.nodes
    assert not sample.backward.operations.seen

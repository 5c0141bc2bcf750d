"""Whether gradients that somebody uses go on through a call whose weights nobody trains."""

from __future__ import annotations

import weakref

import torch
from torch import nn

from flatout.attach.watch.link_calls import Call, ModuleCalls
from flatout.attach.watch.link_flow import GradientFlow
from tests.unit.attach.watch.passes import nodes_of

LINE = (1, 2, False)


class Looked:
    """One step, in which an optimizer has the weights of `trained`."""

    def __init__(self, *trained: nn.Module) -> None:
        held = {id(weight): weakref.ref(weight) for module in trained for weight in module.parameters()}
        self.calls = ModuleCalls(torch, lambda: held, {})
        self.flow = GradientFlow(torch)

    def call(self, module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        self.calls.enter({"self": module, "args": (x,), "kwargs": {}}, LINE)
        result = module(x)
        self.calls.leave(result)
        return result

    def backward(self, loss: torch.Tensor) -> None:
        nodes = nodes_of(loss)
        self.flow.look(nodes, self.calls)
        loss.backward()
        for call in self.calls.found:
            call.passes += 1

    def later(self) -> list[Call]:
        self.calls.finish()
        self.flow.finish(self.calls)
        found = self.calls.find_unchanged(self.calls.found)
        self.flow.finish_later(self.calls)
        return found


def test_below_all_that_is_trained_nothing_needs_a_gradient() -> None:
    first, second, head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
    looked = Looked(head)

    looked.backward(looked.call(head, looked.call(second, looked.call(first, torch.randn(2, 4)))).sum())

    assert [call.flows_through for call in looked.later()] == [False, False]


def test_what_lies_above_something_trained_passes_gradients_on() -> None:
    below, frozen, head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
    looked = Looked(below, head)

    looked.backward(looked.call(head, looked.call(frozen, looked.call(below, torch.randn(2, 4)))).sum())

    assert [call.flows_through for call in looked.later()] == [True]


def test_an_input_with_a_gradient_is_for_somebody() -> None:
    frozen, head = nn.Linear(4, 4), nn.Linear(4, 4)
    looked = Looked(head)

    looked.backward(looked.call(head, looked.call(frozen, torch.randn(2, 4, requires_grad=True))).sum())

    assert [call.flows_through for call in looked.later()] == [True]


def test_a_weight_below_that_is_trained_by_hand_needs_its_gradient() -> None:
    frozen, head, places = nn.Linear(4, 4), nn.Linear(4, 4), nn.Parameter(torch.zeros(4))
    looked = Looked(head)

    looked.backward(looked.call(head, looked.call(frozen, torch.randn(2, 4) + places)).sum())
    assert places.grad is not None
    places.data.add_(places.grad)

    assert [call.flows_through for call in looked.later()] == [True]


def test_a_module_that_is_trained_by_hand_is_not_told() -> None:
    by_hand, head = nn.Linear(4, 4), nn.Linear(4, 4)
    looked = Looked(head)

    looked.backward(looked.call(head, looked.call(by_hand, torch.randn(2, 4))).sum())
    for weight in by_hand.parameters():
        assert weight.grad is not None
        weight.data.sub_(weight.grad)
        weight.grad = None

    assert looked.later() == []

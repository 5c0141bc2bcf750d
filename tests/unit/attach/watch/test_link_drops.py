"""Which gradients are told as dropped, by where what leads to them was computed, and which are not."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from flatout.attach.tracer import Tracer
from flatout.attach.watch.link_calls import Call, ModuleCalls
from flatout.attach.watch.link_drops import _MOST_LATER, Drops, LaterSteps
from flatout.attach.watch.link_sample import LinkSample


@pytest.fixture(autouse=True)
def no_other_trace() -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(None)
    yield
    assert sys.gettrace() is None
    sys.settrace(before)


class Generator(nn.Linear):
    pass


class Critic(nn.Linear):
    pass


def told(drops: Drops) -> set[str]:
    found = drops.finish()
    assert all(call.kind == "dropped" and call.nodes and call.backward_s > 0 for call in found)
    return {call.module for call in found}


class Players:
    """A generator and its critic, and one step of them that is looked at, as the patches do it."""

    def __init__(self, *more: torch.optim.Optimizer) -> None:
        self.generator, self.critic = Generator(4, 4), Critic(4, 1)
        self.of_generator = torch.optim.SGD(self.generator.parameters(), lr=0.01)
        self.of_critic = torch.optim.SGD(self.critic.parameters(), lr=0.01)
        self.more = more
        self.sample: LinkSample | LaterSteps | None = None
        self.drops: Drops | None = None

    def look(self, step: Callable[[Players], None], steps_before: int = 1) -> set[str]:
        """The modules through which backward goes in vain; "" stands for other operations."""
        for _ in range(steps_before):
            step(self)
        optimizers = [weakref.ref(one) for one in (self.of_generator, self.of_critic, *self.more)]
        calls = ModuleCalls(torch, dict, {})
        tracer = Tracer(lambda codes, moments: None)
        sample = self.sample = LinkSample(torch, tracer, 1, 10.0, 0.0, calls, Drops(torch, optimizers))
        sample.begin()
        step(self)
        self.sample = None
        sample.end()
        assert not sample.why_not
        self.drops = sample.backward.drops
        return told(self.drops)

    def follow(self, drops: Drops, *steps: Callable[[Players], None]) -> set[str]:
        """The same, known some steps later."""
        assert drops.is_undecided
        later = self.sample = LaterSteps(drops, 1)
        for step in steps:
            assert not later.is_over
            step(self)
        assert later.is_over
        self.sample = None
        return told(drops)

    def fake(self) -> torch.Tensor:
        result: torch.Tensor = self.generator(torch.randn(2, 4))
        return result

    def backward(self, loss: torch.Tensor, inputs: Any = None) -> None:
        if self.sample is not None:
            self.sample.backward_begins(loss, False, inputs is not None)
        loss.backward(inputs=inputs)
        if self.sample is not None:
            self.sample.backward_ends()

    def step(self, optimizer: torch.optim.Optimizer, closure: Any = None) -> None:
        if self.sample is not None:
            self.sample.optimizer_begins(optimizer)
        optimizer.step(closure)
        if self.sample is not None:
            self.sample.optimizer_ends()

    def train(self, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        optimizer.zero_grad()
        self.backward(loss)
        self.step(optimizer)


def without_detach(players: Players) -> None:
    players.train(players.of_critic, players.critic(players.fake()).mean())
    players.train(players.of_generator, -players.critic(players.fake()).mean())


def other_way_round(players: Players) -> None:
    players.train(players.of_generator, -players.critic(players.fake()).mean())
    players.train(players.of_critic, players.critic(players.fake()).mean())


def set_to_zero(players: Players) -> None:
    players.train(players.of_critic, players.critic(players.fake()).mean())
    players.of_generator.zero_grad(set_to_none=False)
    players.backward(-players.critic(players.fake()).mean())
    players.step(players.of_generator)


def clipped(players: Players) -> None:
    for optimizer, sign in ((players.of_critic, 1), (players.of_generator, -1)):
        optimizer.zero_grad()
        players.backward(sign * players.critic(players.fake()).mean())
        nn.utils.clip_grad_norm_([*optimizer.param_groups[0]["params"]], 0.01)
        players.step(optimizer)


def two_turns_of_the_critic(players: Players) -> None:
    for _ in range(2):
        players.train(players.of_critic, players.critic(players.fake()).mean())
    players.train(players.of_generator, -players.critic(players.fake()).mean())


@pytest.mark.parametrize("step", [without_detach, other_way_round, set_to_zero, clipped, two_turns_of_the_critic])
def test_what_leads_to_gradients_that_are_cleared_is_in_vain(step: Callable[[Players], None]) -> None:
    assert Players().look(step) == {"Generator"}


def test_it_is_told_by_its_line_where_no_module_is_called() -> None:
    def step(players: Players) -> None:
        weight, bias = players.generator.weight, players.generator.bias
        players.train(players.of_critic, players.critic(torch.randn(2, 4) @ weight + bias).mean())
        players.train(players.of_generator, -players.critic(players.fake()).mean())

    assert Players().look(step) == {""}


def with_detach(players: Players) -> None:
    players.train(players.of_critic, players.critic(players.fake().detach()).mean())
    players.train(players.of_generator, -players.critic(players.fake()).mean())


def generator_first(players: Players) -> None:
    fake = players.fake()
    players.train(players.of_generator, -players.critic(fake).mean())
    players.train(players.of_critic, players.critic(fake.detach()).mean())


def never_cleared(players: Players) -> None:
    players.train(players.of_critic, players.critic(players.fake()).mean())
    players.backward(-players.critic(players.fake()).mean())
    players.step(players.of_generator)


def not_stepped(players: Players) -> None:
    players.generator.zero_grad()
    players.train(players.of_critic, players.critic(players.fake()).mean())


def all_read_by_hand(players: Players) -> None:
    """Fisher information: no gradient of the first pass is used by an optimizer."""
    players.backward(players.critic(players.fake()).mean())
    players.of_generator.zero_grad()
    players.of_critic.zero_grad()
    players.backward(players.critic(players.fake()).square().mean())
    players.step(players.of_critic)
    players.step(players.of_generator)


def held_on_to(players: Players) -> None:
    players.train(players.of_critic, players.critic(players.fake()).mean())
    kept = [weight.grad for weight in players.generator.parameters()]
    players.train(players.of_generator, -players.critic(players.fake()).mean())
    del kept


def put_in_by_hand(players: Players) -> None:
    players.train(players.of_critic, players.critic(players.fake()).mean())
    players.of_generator.zero_grad()
    players.backward(-players.critic(players.fake()).mean())
    for weight in players.generator.parameters():
        weight.grad = torch.ones_like(weight)
    players.step(players.of_generator)


def trained_by_hand(players: Players) -> None:
    players.train(players.of_critic, players.critic(players.fake()).mean())
    with torch.no_grad():
        for weight in players.generator.parameters():
            assert weight.grad is not None
            weight.sub_(0.1 * weight.grad)
    players.train(players.of_generator, -players.critic(players.fake()).mean())


def some_inputs_only(players: Players) -> None:
    players.of_critic.zero_grad()
    players.backward(players.critic(players.fake()).mean(), inputs=list(players.critic.parameters()))
    players.step(players.of_critic)
    players.train(players.of_generator, -players.critic(players.fake()).mean())


def both_with_one_loss(players: Players) -> None:
    players.of_generator.zero_grad()
    players.of_critic.zero_grad()
    for _ in range(2):
        players.backward(players.critic(players.fake()).square().mean())
    players.step(players.of_generator)
    players.step(players.of_critic)


QUIET = [
    with_detach,
    generator_first,
    never_cleared,
    not_stepped,
    all_read_by_hand,
    held_on_to,
    put_in_by_hand,
    trained_by_hand,
    some_inputs_only,
    both_with_one_loss,
]


@pytest.mark.parametrize("step", QUIET)
def test_others_are_not(step: Callable[[Players], None]) -> None:
    assert Players().look(step) == set()


def test_an_optimizer_that_evaluates_by_itself_is_left_alone() -> None:
    players = Players()
    players.of_critic = torch.optim.LBFGS(players.critic.parameters(), max_iter=2)  # type: ignore[assignment]

    def closure() -> torch.Tensor:
        players.of_critic.zero_grad()
        loss = players.critic(players.fake()).square().mean()
        players.backward(loss)
        return loss

    def step(players: Players) -> None:
        players.step(players.of_critic, closure)
        players.train(players.of_generator, -players.critic(players.fake()).mean())

    assert players.look(step) == set()


def test_a_weight_that_two_optimizers_have_is_left_alone() -> None:
    players = Players()
    players.more = (torch.optim.SGD(players.generator.parameters(), lr=0.1),)

    assert players.look(without_detach) == set()


def test_what_is_needed_for_another_weight_is_left_alone() -> None:
    """The generator's loss fills the critic's gradients as well, and these are cleared: there is nothing to detach."""

    def step(players: Players) -> None:
        players.train(players.of_critic, players.critic(players.fake().detach()).mean())
        scaled = nn.functional.linear(players.fake(), players.critic.weight / players.critic.weight.norm())
        players.train(players.of_generator, -scaled.mean())

    assert Players().look(step) == set()


class Normed(nn.Module):
    """None of its weights is used as it is."""

    def __init__(self) -> None:
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.layers = nn.Sequential(*[norm(nn.Linear(4, 4, bias=False)) for _ in range(3)])
        self.classes = nn.Embedding(2, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x + self.classes(torch.tensor([0, 1, 1])))
        return result


def test_nor_are_weights_that_are_normed_and_classes() -> None:
    players = Players()
    players.critic = Normed()  # type: ignore[assignment]
    players.of_critic = torch.optim.SGD(players.critic.parameters(), lr=0.01)

    def step(players: Players) -> None:
        fake = players.generator(torch.randn(3, 4))
        players.train(players.of_critic, players.critic(fake.detach()).mean())
        players.train(players.of_generator, -players.critic(fake).mean())

    assert players.look(step) == set()


def test_no_weight_gradient_or_graph_is_kept() -> None:
    players = Players()
    drops = Drops(torch, [weakref.ref(players.of_generator), weakref.ref(players.of_critic)])
    assert drops.is_on
    loss = players.critic(players.fake()).mean()
    node = loss.grad_fn
    drops.begin_pass(False)
    for following, _ in node.next_functions[0][0].next_functions:
        if following is not None and following.name().endswith("AccumulateGrad"):
            drops.meet(following)
    drops.find([], [], lambda number: (1, 1, False), (1, 1, False))
    loss.backward()
    drops.end_pass()
    known = [weakref.ref(thing) for weight in players.critic.parameters() for thing in (weight, weight.grad)]

    del players, loss, node, following
    gc.collect()

    assert [reference() for reference in known] == [None] * 4
    assert drops.finish() == []


def test_one_optimizer_has_nothing_to_tell() -> None:
    players = Players()

    assert not Drops(torch, [weakref.ref(players.of_generator)]).is_on


class Attacked:
    """One model, one optimizer, and passes for the input alone before it is trained."""

    def __init__(self, optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD) -> None:
        self.model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 1, bias=False))
        self.optimizer = optimizer(self.model.parameters(), lr=0.01)
        self.sample: LinkSample | None = None

    def look(self, step: Callable[[Attacked], None]) -> list[Call]:
        step(self)
        drops = Drops(torch, [weakref.ref(self.optimizer)])
        tracer = Tracer(lambda codes, moments: None)
        sample = self.sample = LinkSample(torch, tracer, 1, 10.0, 0.0, ModuleCalls(torch, dict, {}), drops)
        sample.begin()
        step(self)
        self.sample = None
        sample.end()
        assert not sample.why_not
        return drops.finish()

    def backward(self, loss: torch.Tensor) -> None:
        if self.sample is not None:
            self.sample.backward_begins(loss, False, False)
        loss.backward()
        if self.sample is not None:
            self.sample.backward_ends()

    def attack(self, times: int = 2) -> torch.Tensor:
        moved = torch.randn(2, 4)
        for _ in range(times):
            moved.requires_grad_(True)
            self.backward(self.model(moved).mean())
            assert moved.grad is not None
            moved = moved.detach() + moved.grad.sign()
        return moved

    def train(self, loss: torch.Tensor) -> None:
        self.backward(loss)
        if self.sample is not None:
            self.sample.optimizer_begins(self.optimizer)
        self.optimizer.step()
        if self.sample is not None:
            self.sample.optimizer_ends()


def attacked_first(players: Attacked) -> None:
    moved = players.attack()
    players.optimizer.zero_grad()
    players.train(players.model(moved).mean())


def attacked_and_set_to_zero(players: Attacked) -> None:
    moved = players.attack()
    players.optimizer.zero_grad(set_to_none=False)
    players.train(players.model(moved).mean())


@pytest.mark.parametrize("step", [attacked_first, attacked_and_set_to_zero])
def test_passes_for_an_input_alone_make_gradients_of_weights_in_vain(step: Callable[[Attacked], None]) -> None:
    calls = Attacked().look(step)

    # The products with a weight, the norm, and the weight that is turned over: not the mean. In two passes.
    assert len(calls) == 2
    assert {(call.kind, call.module, call.flows_through) for call in calls} == {("dropped", "", True)}
    assert all(3 <= call.nodes <= 6 and call.backward_s > 0 for call in calls)


def gradients_of_both_are_used(players: Attacked) -> None:
    players.optimizer.zero_grad()
    players.attack(times=1)
    players.train(players.model(torch.randn(2, 4)).mean())


def an_input_that_wants_a_gradient(players: Attacked) -> None:
    players.optimizer.zero_grad()
    players.train(players.model(torch.randn(2, 4, requires_grad=True)).mean())


def never_trained_otherwise(players: Attacked) -> None:
    players.attack()
    players.optimizer.zero_grad()
    players.backward(players.model(torch.randn(2, 4)).mean())


def kept_by_the_script(players: Attacked) -> None:
    moved = players.attack(times=1)
    kept = [weight.grad for weight in players.model.parameters()]
    players.optimizer.zero_grad()
    players.train(players.model(moved).mean())
    del kept


def without_an_input(players: Attacked) -> None:
    players.backward(players.model(torch.randn(2, 4)).mean())
    players.optimizer.zero_grad()
    players.train(players.model(torch.randn(2, 4)).mean())


@pytest.mark.parametrize(
    "step",
    [
        gradients_of_both_are_used,
        an_input_that_wants_a_gradient,
        never_trained_otherwise,
        kept_by_the_script,
        without_an_input,
    ],
)
def test_other_passes_over_a_single_model_are_left_alone(step: Callable[[Attacked], None]) -> None:
    assert Attacked().look(step) == []


# What a step leaves is decided in a later one: a generator that steps after several steps of its critic.


def turn_of_critic(players: Players) -> None:
    players.train(players.of_critic, players.critic(players.fake()).mean())


def turn_of_generator(players: Players) -> None:
    players.train(players.of_generator, -players.critic(players.fake()).mean())


def turn_of_generator_set_to_zero(players: Players) -> None:
    players.of_generator.zero_grad(set_to_none=False)
    players.backward(-players.critic(players.fake()).mean())
    players.step(players.of_generator)


def turn_of_generator_with_all(players: Players) -> None:
    """What the critic's passes have left is used."""
    players.backward(-players.critic(players.fake()).mean())
    players.step(players.of_generator)


def look_at_a_turn_of_the_critic(players: Players) -> Drops:
    assert players.look(turn_of_critic) == set()
    assert players.drops is not None
    return players.drops


@pytest.mark.parametrize("last", [turn_of_generator, turn_of_generator_set_to_zero])
@pytest.mark.parametrize("turns", [0, 3])
def test_what_is_cleared_some_steps_later_is_in_vain(turns: int, last: Callable[[Players], None]) -> None:
    players = Players()
    drops = look_at_a_turn_of_the_critic(players)

    assert players.follow(drops, *[turn_of_critic] * turns, last) == {"Generator"}


def test_what_is_used_some_steps_later_is_not() -> None:
    players = Players()
    drops = look_at_a_turn_of_the_critic(players)

    assert players.follow(drops, turn_of_critic, turn_of_generator_with_all) == set()


def test_what_nobody_clears_is_not_followed_for_ever() -> None:
    players = Players()
    drops = look_at_a_turn_of_the_critic(players)

    assert players.follow(drops, *[turn_of_critic] * _MOST_LATER) == set()


def test_changes_by_hand_decide_nothing() -> None:
    def by_hand(players: Players) -> None:
        with torch.no_grad():
            for weight in players.generator.parameters():
                assert weight.grad is not None
                weight.sub_(weight.grad)
                weight.grad = None
        turn_of_critic(players)

    players = Players()
    drops = look_at_a_turn_of_the_critic(players)

    assert players.follow(drops, by_hand) == set()

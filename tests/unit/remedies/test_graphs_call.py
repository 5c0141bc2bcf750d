"""A replayed model trains as the model itself does, whatever the script does around it.

The tapes are those of the CPU: the same memory is written over at every replay, as a CUDA graph does.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from flatout.remedies.compute.graphed_model import GraphedCall
from flatout.remedies.model.module_calls import replace_call
from tests.unit.remedies.applied import reason, site_for
from tests.unit.remedies.graphed_training import CpuTapes, Net, Train, both


def _loop(set_to_none: bool = True, parts: int = 1) -> Train:
    def train(model: Any, batches: list[Tensor]) -> list[float]:
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        losses = []
        for number, x in enumerate(batches):
            loss = model(x).square().mean() / parts
            loss.backward()
            if number % parts == parts - 1:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=set_to_none)
            losses.append(loss.item())
        return losses

    return train


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("parts", [1, 2])
def test_the_training_is_the_same(set_to_none: bool, parts: int) -> None:
    site, call, _ = both(_loop(set_to_none, parts))

    assert site.in_force and site.live["first_replay"] == "identical"
    assert call.replays == 10


def test_it_can_rest_for_some_turns_of_a_training() -> None:
    replayed = []

    def train(model: Any, batches: list[Tensor]) -> list[float]:
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        losses = []
        for number, x in enumerate(batches * 3):
            call = model._compiled_call_impl
            before = call.replays if call is not None else 0
            if call is not None:
                call._site.is_resting = number % 10 >= 6
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            if call is not None:
                replayed.append(call.replays > before)
        return losses

    site, _, _ = both(train)

    assert replayed == [number >= 4 and number % 10 < 6 for number in range(42)]
    assert site.state == "applied"


def test_what_the_script_keeps_stays_as_it_was() -> None:
    def train(model: Any, batches: list[Tensor]) -> list[list[float]]:
        kept, gradients = [], []
        for x in batches:
            model.zero_grad()
            out = model(x)
            out.sum().backward()
            kept.append(out)
            gradients.append(model.head.weight.grad)
        return [one.detach().flatten().tolist() for one in kept + gradients]

    both(train)


def test_evaluation_no_grad_and_other_shapes_go_as_ever() -> None:
    def train(model: Any, batches: list[Tensor]) -> list[float]:
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        results = []
        for number, x in enumerate(batches * 2):
            x = x[:5] if number % 6 == 5 else x
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            model.eval()
            results.append(model(x).sum().item())
            model.train()
            with torch.no_grad():
                results.append(float(model(x).sum()))
        return results

    site, call, _ = both(train)

    assert site.in_force and call.replays == 20


def test_a_checkpoint_around_the_call() -> None:
    def train(model: Any, batches: list[Tensor]) -> list[float]:
        sums: list[float] = []
        for number, x in enumerate(batches * 2):
            model.zero_grad()
            within = checkpoint(model, x, use_reentrant=False) if number % 2 else model(x)
            within.square().mean().backward()
            sums.append(model.head.weight.grad.sum().item())
        return sums

    both(train)


def test_two_calls_before_one_backward() -> None:
    def train(model: Any, batches: list[Tensor]) -> list[float]:
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        losses = []
        for x in batches:
            optimizer.zero_grad()
            loss = model(x).square().mean() - model(-x).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    both(train)


def test_a_graph_that_is_differentiated_twice() -> None:
    def train(model: Any, batches: list[Tensor]) -> list[float]:
        sums: list[float] = []
        for x in batches:
            model.zero_grad()
            out = model(x)
            out.mean().backward(retain_graph=True)
            if len(sums) == 8:
                out.square().mean().backward()
            sums.append(float(model.head.weight.grad.sum()))
        return sums

    site, _, _ = both(train)

    assert site.in_force


def test_evaluation_may_begin_before_a_second_backward_pass() -> None:
    def train(model: Any, batches: list[Tensor]) -> list[float]:
        sums: list[float] = []
        for x in batches:
            model.zero_grad()
            model.train()
            out = model(x)
            model.eval()
            out.mean().backward(retain_graph=True)
            if len(sums) == 8:
                out.square().mean().backward()
            sums.append(float(model.head.weight.grad.sum()))
        return sums

    both(train)


def test_who_counts_or_transforms_operations_sees_them_all() -> None:
    def train(model: Any, batches: list[Tensor]) -> list[float]:
        seen: list[float] = []
        for number, x in enumerate(batches):
            model.zero_grad()
            if number == 9:
                with FlopCounterMode(display=False) as counter:
                    model(x).mean().backward()
                seen.append(counter.get_total_flops())
            elif number == 11:
                seen.append(float(torch.func.grad(lambda one: model(one).square().mean())(x).sum().detach()))
            else:
                model(x).mean().backward()
        return seen

    make = lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))  # noqa: E731

    both(train, make)


def test_a_script_s_own_error_between_the_passes_leaves_the_next_call_right() -> None:
    def train(model: Any, batches: list[Tensor]) -> list[float]:
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        losses, held = [], []
        for number, x in enumerate(batches * 2):
            optimizer.zero_grad()
            try:
                loss = model(x).square().mean()
                if number % 5 == 4:
                    raise ValueError(number)
            except ValueError as error:
                held.append(error)  # with its traceback, and so with the graph
                continue
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    both(train)


@pytest.mark.parametrize("within_first", [True, False])
def test_a_module_that_is_called_within_another_too(within_first: bool) -> None:
    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = Net(drop=0.0), nn.Linear(2, 1)

        def forward(self, x: Tensor) -> Any:
            return self.head(self.inner(x))

    def train(site: Any) -> tuple[list[float], list[int]]:
        torch.manual_seed(0)
        model, losses, calls = Around(), [], []
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        for module in (model, model.inner) if site is not None else ():
            calls.append(GraphedCall(site, module, CpuTapes()))
            replace_call(site, module, calls[-1])
        for _ in range(14):
            x = torch.randn(16, 8)
            optimizer.zero_grad()
            first, second = (model(x), model.inner(x)) if within_first else (model.inner(x), model(x))
            loss = first.square().mean() + second.square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, [call.replays for call in calls]

    plain, _ = train(None)
    site = site_for("graphs.model", True)
    ours, replays = train(site)

    assert site.in_force, reason(site)
    assert ours == pytest.approx(plain, rel=1e-5) and min(replays) > 5


def test_results_may_be_written_into() -> None:
    def train(model: Any, batches: list[Tensor]) -> list[float]:
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        losses = []
        for x in batches:
            optimizer.zero_grad()
            loss = model(x).mul_(2).tanh_().square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    both(train)


def test_weights_loaded_into_place_are_used() -> None:
    def train(model: Any, batches: list[Tensor]) -> list[float]:
        first = {name: one.clone() for name, one in model.state_dict().items()}
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), 0.1)
        losses = []
        for number, x in enumerate(batches):
            if number == 10:
                model.load_state_dict(first)
                optimizer = torch.optim.Adam(model.parameters(), 0.01)
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    both(train)


def test_a_gradient_that_is_differentiated_itself() -> None:
    def train(model: Any, batches: list[Tensor]) -> list[float]:
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        penalties = []
        for number, x in enumerate(batches * 2):
            optimizer.zero_grad()
            x = x.clone().requires_grad_(True)
            loss = model(x).square().mean()
            if number % 6 == 5:
                (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
                loss = loss + gradient.square().sum()
            loss.backward()
            optimizer.step()
            penalties.append(loss.item())
        return penalties

    make = lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 1))  # noqa: E731

    # Gradients of the two passes over the weights are added up in another order.
    both(train, make, exact=False)


class Parts(nn.Module):
    """Several results of which one is a choice, and some have weights of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: Tensor, flip: bool = False) -> dict[str, Any]:
        logits = self.one(-x if flip else x)
        return {"logits": logits, "again": logits, "beside": (self.other(x), logits.argmax(1)), "name": "parts"}


def test_of_several_results_some_are_used() -> None:
    def train(model: Any, batches: list[Tensor]) -> list[float]:
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        losses = []
        for number, x in enumerate(batches):
            optimizer.zero_grad()
            out = model(x, flip=False)
            assert out["again"] is out["logits"] and out["name"] == "parts" and not out["beside"][1].requires_grad
            loss = out["logits"].square().mean() + (out["beside"][0].mean() if number != 9 else 0.0)
            loss.backward()
            assert (model.other.weight.grad is None) == (number == 9)
            optimizer.step()
            losses.append(loss.item())
        return losses

    both(train, Parts)


def test_inputs_with_gradients() -> None:
    def train(model: Any, batches: list[Tensor]) -> list[float]:
        before: Any = torch.randn(8, 8, generator=torch.Generator().manual_seed(1)).requires_grad_(True)
        sums: list[float] = []
        for x in batches:
            before.grad = None
            model(x @ before).square().mean().backward()
            sums.append(before.grad.sum().item())
        return sums

    both(train)


def test_autocast_around_the_call() -> None:
    def train(model: Any, batches: list[Tensor]) -> list[float]:
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        losses = []
        for x in batches:
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                out = model(x)
                loss = out.float().square().mean()
            assert out.dtype is torch.bfloat16
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    both(train)


def test_the_model_is_still_the_users_own() -> None:
    _, _, model = both(_loop())

    twin = copy.deepcopy(model)

    assert "_compiled_call_impl" in vars(model) and "_compiled_call_impl" not in vars(twin)
    assert twin.state_dict().keys() == Net().state_dict().keys()
    assert "_compiled_call_impl" not in vars(pickle.loads(pickle.dumps(model)))

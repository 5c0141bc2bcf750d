"""The envelope over a real training: coarser rounding is inside, a mistake of the kind remedies could make is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.nn import Linear, Module, ReLU, Sequential

from flatout.experiment.statistics.quality import judge_envelope, judge_identity
from flatout.records.trial import Trial

PERTURBATION = 2.0**-20


class Rounded(Module):
    """Lets numbers through in bfloat16, which is what autocast does to the matrices."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values.bfloat16().float()


def trained(seed: int = 0, *, rounded: bool = False, lr: float = 0.03, wrong_labels: bool = False) -> Trial:
    torch.manual_seed(0)
    rounding = [Rounded()] if rounded else []
    net = Sequential(Linear(64, 64), *rounding, ReLU(), Linear(64, 64), *rounding, ReLU(), Linear(64, 10), *rounding)
    perturbations = torch.Generator().manual_seed(seed)
    for weight in net.parameters():
        weight.data.mul_(1 + (PERTURBATION * torch.randn(weight.shape, generator=perturbations) if seed else 0.0))
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    data = torch.Generator().manual_seed(1)
    classes = torch.randn(10, 64, generator=data)
    losses = []
    for step in range(100):
        labels = torch.randint(0, 10, (32,), generator=data)
        images = 0.5 * classes[labels] + torch.randn(32, 64, generator=data)
        targets = (labels + 1) % 10 if wrong_labels and step % 10 == 0 else labels
        loss = torch.nn.functional.cross_entropy(net(images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return Trial("as it is", {}, "stopped", step_s=(0.1,), losses=tuple(losses))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    # Threads that wait for each other on a busy machine take a hundred times as long as such small matrices.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def controls() -> list[Trial]:
    return [trained(), trained(1), trained(2)]


def test_a_perturbation_and_a_coarser_rounding_are_inside(controls: list[Trial]) -> None:
    perturbed, rounded = trained(3), trained(rounded=True)

    assert judge_identity([controls[0], trained()], rounded).verdict == "differs"
    assert judge_envelope(controls, [perturbed]).verdict == "inside"
    assert judge_envelope(controls, [rounded]).verdict == "inside"


def test_what_changes_the_training_is_outside(controls: list[Trial]) -> None:
    assert judge_envelope(controls, [trained(wrong_labels=True)]).verdict == "outside"
    assert judge_envelope(controls, [trained(lr=0.036)]).verdict == "outside"

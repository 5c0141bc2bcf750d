"""Statements of a training step of which nothing leads to an update."""

from __future__ import annotations

import pytest

from flatout.source.flow.unused_work import unused_blocks

# The statement in question is on line 3 of the loop's function, before the loss, or at its end.
_LOOP = """\
def fit(model, loader, optimizer, helper):
    for step, (x, y) in enumerate(loader):
        {first}
        out = model(x)
        loss = criterion(out, y)
        loss.backward()
        optimizer.step()
        {last}
"""


def found(first: str = "pass", last: str = "pass", more: str = "") -> list[str]:
    text = _LOOP.format(first=first, last=last) + more
    lines = text.splitlines()
    return [lines[block[0] - 1].strip() for block in unused_blocks(text)]


@pytest.mark.parametrize(
    "statement",
    [
        "score = metric(out, y)",
        "total += loss.item()",
        "meter.update(out.detach(), y)",
        "print(f'{loss.item():.3f}')",
        "scores = [rank(row) for row in out.detach()]",
    ],
)
def test_what_nothing_reads_is_unused(statement: str) -> None:
    assert found(last=statement) == [statement]


@pytest.mark.parametrize(
    "first",
    ["x = augment(x)", "helper.prepare(x)", "model.refresh()", "x, y = mix(x, y)", "helper()", "adjust(model)"],
)
def test_what_reaches_the_loss_is_used(first: str) -> None:
    assert found(first=first) == []


@pytest.mark.parametrize(
    "last",
    [
        "adjust(model)",  # it may change the model
        "average.lerp_(out.mean(), 0.1)",  # an average of weights is what a training may be for
        "memory = helper.next(out)\n        model.push(memory)",  # used by the next step
        "loss_now = loss.item()\n        if loss_now > 9:\n            break",
        "for group in optimizer.param_groups:\n            group['lr'] = rate(step)",
        "scheduler.step()",
    ],
)
def test_what_a_later_step_may_read_is_used(last: str) -> None:
    assert found(last=last) == []


def test_functions_of_the_file_are_looked_into() -> None:
    counts = "\nseen = []\ndef note(out):\n    seen.append(out.mean())\n"
    trains = "\ndef note(out):\n    model.weights.push(out)\n"

    assert found(last="note(out)", more=counts) == ["note(out)"]
    # It changes the model that the loop trains.
    assert found(last="note(out)", more=trains) == []


def test_what_a_trainer_keeps_is_followed_by_its_attributes() -> None:
    text = """\
class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def pulls(self, losses):
        return [torch.autograd.grad(loss, self.model.trunk(), retain_graph=True) for loss in losses]

    def train_step(self, step, x, y):
        losses = losses_of(self.model(x), y)
        self.quarrel = self.pulls(losses)
        loss = sum(losses)
        loss.backward()
        self.optimizer.step()
        if step % 75 == 0:
            print(self.quarrel)
"""

    assert [block[0] for block in unused_blocks(text)] == [10, 14]
    # The weights of the losses come from it.
    assert [block[0] for block in unused_blocks(text.replace("sum(losses)", "mix(losses, self.quarrel)"))] == [14]


def test_what_decides_where_a_step_goes_on_is_used() -> None:
    assert found(first="if too_long(x):\n            continue") == []


def test_a_call_without_arguments_may_do_anything() -> None:
    assert found(first="observe()") == []


@pytest.mark.parametrize(
    "text",
    [
        # The loss goes through what a `with` binds.
        """for x, y in loader:
    out = model(x)
    loss = criterion(out, y)
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
""",
        # Methods of one name in several classes: which it is, is not known.
        """class Net:
    def forward(self, x):
        return x
class Trainer:
    def forward(self):
        self.fake = self.net(self.real)
    def optimize(self):
        self.forward()
        self.optimizer.zero_grad()
        self.backward_of_net()
        self.loss.backward()
        self.optimizer.step()
""",
        # What it has seen is what it goes back over.
        """for x, y in loader:
    out = learner.predict(x)
    learner.backward(y)
    learner.step()
""",
        # The buffer is the same in the next call, under whatever name.
        """def train_step(self, model, optimizer, pool):
    x = pool.sample()
    loss = model(x)
    loss.backward()
    optimizer.step()
    pool.add(x)
""",
        """class Trainer:
    def train_step(self):
        pool = self.pool
        loss = self.model(self.pool.sample())
        loss.backward()
        self.optimizer.step()
        pool.extend(rollout(self.model))
""",
        """for x in loader:
    assert check(x)
    loss = model(x)
    loss.backward()
    super().after()
""",
    ],
    ids=["with", "methods of one name", "wrapper", "given", "other name", "check"],
)
def test_what_is_not_understood_counts_as_used(text: str) -> None:
    assert unused_blocks(text) == ()

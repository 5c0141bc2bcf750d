"""Runs that have CA606, and that must stay quiet."""

from __future__ import annotations

from flatout.records.ledger import CallPath
from flatout.records.report import Location
from tests.cases.evidence import Case, run

_FILE = "train.py"
_MS = {"forward": 60.0, "backward": 32.0, "optimizer": 8.0}
_PREVIEWS = """\
def sample(model):
    return model(noise)
for step in range(steps):
    loss = model(batch).mean()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        images = sample(model)
        show(images)
"""
_ROLLOUTS = """\
def sample(model):
    return model(noise)
for step in range(steps):
    loss = model(images).mean()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        images = sample(model)
"""
_TRAINS = """\
def sample(model):
    return model(noise)
for step in range(steps):
    observe()
    if step % 10 == 0:
        loss = sample(model)
        loss.backward()
        optimizer.step()
"""
_DIAGNOSES = """\
def pulls(losses):
    return [torch.autograd.grad(loss, trunk, retain_graph=True) for loss in losses]
for step in range(steps):
    losses = parts(model(batch))
    quarrel = pulls(losses)
    loss = sum(losses)
    loss.backward()
    optimizer.step()
    if step % 75 == 0:
        print(quarrel)
"""


def _paths(sampled_ms: float, lines: tuple[int, int], at: int, backward: int) -> tuple[CallPath, ...]:
    def path(phase: str, ms: float, *numbers: int) -> CallPath:
        places = tuple(Location(_FILE, number) for number in numbers)
        return CallPath(places, ("f",) * len(places), phase, ms, 10.0 * ms)

    return (
        path("forward", sampled_ms, *lines),
        path("forward", 60.0 - sampled_ms, at),
        path("backward", 32.0, backward),
    )


def _diagnosed(ms: float) -> tuple[CallPath, ...]:
    def path(phase: str, ms: float, *numbers: int) -> CallPath:
        places = tuple(Location(_FILE, number) for number in numbers)
        return CallPath(places, ("f",) * len(places), phase, ms, 10.0 * ms)

    return (
        path("backward", ms, 5, 2),
        path("forward", 60.0, 4),
        path("backward", 32.0 - ms, 7),
        path("optimizer", 8.0, 8),
    )


CASES = (
    Case(
        "finds it when previews take more than the passes",
        run(ms=_MS, files={_FILE: _PREVIEWS}, call_paths=_paths(45.0, (8, 2), 4, 5)),
        found=True,
    ),
    Case(
        "quiet when the loop trains on what is sampled",
        run(ms=_MS, files={_FILE: _ROLLOUTS}, call_paths=_paths(45.0, (8, 2), 4, 5)),
        found=False,
    ),
    Case(
        "quiet when it is the training that is done every few steps",
        run(ms=_MS, files={_FILE: _TRAINS}, call_paths=_paths(30.0, (6, 2), 4, 7)),
        found=False,
    ),
    Case(
        "quiet when previews are a small part",
        run(ms=_MS, files={_FILE: _PREVIEWS}, call_paths=_paths(4.0, (8, 2), 4, 5)),
        found=False,
    ),
    Case(
        "finds it when gradients are taken in each step for a line of output",
        run(ms=_MS, files={_FILE: _DIAGNOSES}, call_paths=_diagnosed(20.0)),
        found=True,
    ),
    Case(
        "quiet when the training weighs its losses by them",
        run(
            ms=_MS,
            files={_FILE: _DIAGNOSES.replace("sum(losses)", "mix(losses, quarrel)")},
            call_paths=_diagnosed(20.0),
        ),
        found=False,
    ),
    Case("quiet when a recording has no calls", run(ms=_MS, files={_FILE: _PREVIEWS}), found=False),
)

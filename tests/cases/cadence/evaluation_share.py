"""Runs and code that have CA601, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import Evaluations
from tests.cases.code import SourceCase, cases_in
from tests.cases.evidence import HERE, Case, loader, on_gpu, run, worker_cost

_TENTH = {"data": 1.0, "forward": 28.0, "backward": 52.0, "optimizer": 9.0, "eval": 10.0}
_VALIDATION = loader(number=2, trains=False, epochs=10, dataset_len=3_000, cost=worker_cost(fetch_ms_per_sample=0.05))
_SOME = Evaluations(10, 0.3, HERE)
CASES = (
    Case("finds it when a tenth of the run is evaluation", run(ms=_TENTH, evaluations=_SOME), found=True),
    Case(
        "finds it when half of a GPU's time is evaluation",
        run(
            gpu=on_gpu(),
            ms={"data": 1.0, "forward": 18.0, "backward": 24.0, "optimizer": 7.0, "eval": 50.0},
            loaders=(loader(epochs=10), _VALIDATION),
            evaluations=Evaluations(10, 1.5, HERE),
        ),
        found=True,
    ),
    Case("quiet when it takes 2% of the run", run(ms={**_TENTH, "eval": 2.0}, evaluations=_SOME), found=False),
    Case("quiet when there was only one", run(ms=_TENTH, evaluations=Evaluations(1, 3.0, HERE)), found=False),
    Case(
        "quiet when each evaluation is slow because of its feed",
        run(
            ms={**_TENTH, "eval": 30.0},
            loaders=(
                loader(epochs=10),
                loader(
                    number=2,
                    trains=False,
                    epochs=10,
                    num_workers=0,
                    dataset_len=300,
                    cost=worker_cost(fetch_ms_per_sample=9.9, workers=0),
                ),
            ),
            evaluations=Evaluations(10, 0.9, HERE),
        ),
        found=False,
    ),
)

_STEPS = """
import torch

@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    hits = 0
    for x, y in loader:
        hits += (model(x).argmax(1) == y).sum()
    model.train()
    return hits

for epoch in range(9):
    for step, (x, y) in enumerate(loader):
        criterion(model(x), y).backward()
        optimizer.step()
        %s
    evaluate(model, val_loader)
"""
_INLINE = """
for step, (x, y) in enumerate(train_loader):
    model.train()
    criterion(model(x), y).backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        for a, b in val_loader:  # found
            hits += (model(a).argmax(1) == b).sum()
"""
_step = cases_in(_STEPS)
SOURCE_CASES = (
    _step("finds it after each step", "evaluate(model, val_loader)  # found"),
    _step("finds it after every five", "if step % 5 == 0:", "    best = evaluate(model, val_loader)  # found"),
    SourceCase("finds it in the body of the loop", _INLINE),
    _step("quiet when it is once an epoch", "pass"),
    _step("quiet when it is every thousand steps", "if step % 1000 == 0:", "    evaluate(model, val_loader)"),
    _step("quiet when the interval is not known", "if step % args.every == 0:", "    evaluate(model, val_loader)"),
    SourceCase(
        "quiet when it looks at one batch",
        (_STEPS % "evaluate(model, val_loader)").replace("    model.train()", "        break\n    model.train()"),
    ),
    SourceCase(
        "quiet when a turn is an epoch",
        (_STEPS % "pass")
        .replace("    for step, (x, y) in enumerate(loader):\n        crit", "    crit")
        .replace("        optimizer.step()\n        pass\n", "    optimizer.step()\n"),
    ),
)

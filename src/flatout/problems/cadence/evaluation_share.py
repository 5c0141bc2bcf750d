"""Evaluation takes a large share of the run.

What it is: the model is evaluated so often, or on so much data, that training is paused for a good part of the run.

Why the GPU idles: it does not idle, but it does not train either; where the evaluation's loader is slow, it idles as
well.

How it shows in a run: time in `eval`, which is counted to the step that follows, and the number of evaluations between
two training steps.

How it shows in source: a pass over a whole loader without gradients, in every training step or in every few, where the
interval is known.

The fix: evaluate every k-th time: `if (epoch + 1) % k == 0 or epoch + 1 == epochs:`. Keep the last evaluation, and
check what depends on the others: early stopping and "best checkpoint" see the model less often.

What to expect: the share of the evaluations divided by k. The interval proposed brings it to 2% of the run, or is ten
times what it was.

When it is fine: evaluation takes less than 3% of the run, or each result is needed immediately.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from flatout.problems.cadence.pause_costs import (
    find_evaluation,
    gain_if_rarer,
    improve_feed,
    interval_factor,
    is_slow_itself,
    pause_ms,
    steady_steps,
)
from flatout.problems.cadence.pauses import find_evaluations, how_often
from flatout.problems.cases import HERE, Case, SourceCase, cases_in, loader, on_gpu, run, worker_cost
from flatout.problems.found import FoundInRun, FoundInSource
from flatout.problems.prediction import WORTH
from flatout.records.evidence import Evaluations, Evidence
from flatout.records.message import message
from flatout.source.code import Code
from flatout.source.training.jobs import loop_header

CODE = "CA601"
REMEDY = "cadence.eval"
# Fewer looks at the model than this would change what is known of the training.
_MOST_TIMES = 10


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    often, ms = _how_often(run), _cadence_ms(run)
    if often < 2 or run.evaluations is None or ms < WORTH * run.step_ms:
        return
    times = interval_factor(run, ms, _MOST_TIMES)
    gain = gain_if_rarer(run, ms, times, "evaluation")
    if gain is None:
        return
    all_ms, period = pause_ms(run, "eval"), run.report.run.steps / often
    each_s = 1e-3 * all_ms * steady_steps(run) / run.evaluations.count
    yield FoundInRun(
        location=run.evaluations.location,
        evidence={
            "eval_share": round(all_ms / run.step_ms, 4),
            "eval_s_each": round(each_s, 3),
            "evaluations": often,
            "steps_between": round(period, 1),
            "interval_times": times,
        },
        cause=message("ca601.cause", each_s=each_s, period=period, share=all_ms / run.step_ms),
        change=message("ca601.change", times=times, steps=round(times * period), period=round(period)),
        predicted_gain=gain,
    )


def _how_often(run: Evidence) -> int:
    """Evaluations in all: one after the last step is in no step, but its loader was read."""
    seen = run.evaluations.count if run.evaluations else 0
    evaluation = find_evaluation(run)
    return max(seen, evaluation.loader.epochs) if evaluation is not None else seen


def _cadence_ms(run: Evidence) -> float:
    """What evaluating so often costs a step. Where each evaluation is slow by itself, that comes first."""
    ms, evaluation = pause_ms(run, "eval"), find_evaluation(run)
    better = improve_feed(run, evaluation) if evaluation is not None else None
    if (
        evaluation is not None
        and better is not None
        and is_slow_itself(run, evaluation)
        and better.each_ms < 0.5 * evaluation.each_ms
    ):
        return ms * better.each_ms / evaluation.each_ms
    return ms


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


def in_source(code: Code) -> Iterator[FoundInSource]:
    for pause in find_evaluations(code):
        module = pause.region.module
        yield FoundInSource(
            severity="high" if pause.period == 1 else "medium",
            place=loop_header(pause.node, module) if isinstance(pause.node, ast.For) else module.place(pause.node),
            cause=message("ca601.source_cause", often=how_often(pause)),
            change=message("ca601.source_change"),
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

"""Evaluation every k-th time: what is found to be one, what is left alone, and that the last one stays."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from flatout.remedies.site import Site
from tests.unit.remedies.applied import applied, reason

EVALUATE = """
import torch

model = torch.nn.Linear(2, 2)
loader = [torch.ones(1, 2)] * 3
evaluated = []

@torch.no_grad()
def evaluate(model, epoch):
    model.eval()
    total = sum(model(x).sum() for x in loader)
    model.train()
    evaluated.append(epoch)
    return float(total)
"""
TRAIN = """
def train(stepped, epochs):
    best = 0.0
    for epoch in range(epochs):
        for _ in range(4):
            stepped()
        %s
"""


def _trained(folder: Path, call: str, epochs: int = 12, head: str = EVALUATE, **value: Any) -> tuple[Site, list[int]]:
    """Run a training of this source under the remedy; the steps are told as the optimizer's hook would."""
    file = folder / "trained_by_test.py"
    file.write_text(head + TRAIN % call)
    module = ModuleType("trained_by_test")
    sys.modules[module.__name__] = module
    try:
        exec(compile(file.read_text(), str(file), "exec"), vars(module))
        steps = iter(range(1, 10_000))
        with applied("cadence.eval", {"every": 4, "force": False, **value}) as site:
            module.train(lambda: site.stepped(next(steps)), epochs)
        state, why = site.state, site.why
    finally:
        del sys.modules[module.__name__]
    assert (state == "reverted") and (not why or site.live == {}), why
    return site, module.evaluated


def test_it_evaluates_every_kth_time_and_the_last(tmp_path: Path) -> None:
    site, evaluated = _trained(tmp_path, "evaluate(model, epoch)")

    assert evaluated == [0, 1, 5, 9, 11]
    assert site.live == {"function": "evaluate", "every": 4, "keeps_last": True, "from_step": 4}


def test_the_caller_gets_the_last_result(tmp_path: Path) -> None:
    _, evaluated = _trained(tmp_path, "seen = evaluate(model, epoch); print(f'{seen:.3f}')")

    assert evaluated == [0, 1, 5, 9, 11]


def test_the_last_is_kept_where_only_some_turns_evaluate(tmp_path: Path) -> None:
    call = "\n        if (epoch + 1) % 2 == 0:\n            evaluate(model, epoch)"

    _, evaluated = _trained(tmp_path, call, epochs=13)

    assert evaluated == [1, 3, 11]


def test_the_last_is_kept_where_a_count_ends_the_loop(tmp_path: Path) -> None:
    loop = (
        "\n    while best < 26:\n        best += 1\n        stepped()\n        if best % 2 == 0: evaluate(model, best)"
    )

    _, evaluated = _trained(tmp_path, loop.replace("best", "epoch"), epochs=1)

    assert evaluated == [2, 4, 12, 20, 26]


def test_a_call_from_another_place_is_made_as_ever(tmp_path: Path) -> None:
    call = "evaluate(model, epoch)\n    loader.append(loader[0])\n    assert evaluate(model, 99) is not None"

    _, evaluated = _trained(tmp_path, call, epochs=10)

    assert evaluated == [0, 1, 5, 9, 99]


def test_two_sets_at_one_place_have_a_turn_each(tmp_path: Path) -> None:
    head = EVALUATE.replace("return float(total)", "return epoch[1]") + "\nseen = []\n"
    call = "\n        for part in 'ab': print(evaluate(model, (epoch, part)), file=Shown(part))"
    head += "\nclass Shown:\n    def __init__(self, part): self.part = part\n"
    head += "    def write(self, words): seen.append((self.part, words.strip())) if words.strip() else None\n"

    _, evaluated = _trained(tmp_path, call + "\n    evaluated.extend(seen)", head=head)

    turns, seen = evaluated[:10], evaluated[10:]
    assert turns == [(epoch, part) for epoch in (0, 1, 5, 9, 11) for part in "ab"]  # type: ignore[comparison-overlap]
    assert seen == [("a", "a"), ("b", "b")] * 12  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("line", ["model.last = total", "marks[epoch] = total", "global best; best = total"])
def test_a_function_that_leaves_something_behind_is_kept_unless_forced(tmp_path: Path, line: str) -> None:
    head = EVALUATE.replace("    model.train()", f"    model.train(); {line}") + "\nmarks = {}\n"

    site, evaluated = _trained(tmp_path, "evaluate(model, epoch)", head=head, epochs=6)
    _, forced = _trained(tmp_path, "evaluate(model, epoch)", head=head, epochs=6, force=True)

    assert evaluated == list(range(6)) and "on which something may hang" in reason(site)
    assert forced == [0, 1, 5]


def test_a_helper_that_sets_the_mode_is_not_the_evaluation(tmp_path: Path) -> None:
    head = EVALUATE.replace("    model.eval()\n", "    ready(model)\n") + "\ndef ready(model):\n    model.eval()\n"

    _, evaluated = _trained(tmp_path, "evaluate(model, epoch)", head=head)

    assert evaluated == [0, 1, 5, 9, 11]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("score = evaluate(model, epoch)\n        if score > best: best = score", "uses its result: `if score > best"),
        ("best = max(best, evaluate(model, epoch))", "uses its result: `best = max"),
        ("if evaluate(model, epoch) > 3: break", "uses its result: `if evaluate"),
        ("score = evaluate(model, epoch); print('new' if score > best else 'old')", "uses its result: `print"),
        ("check = evaluate; check(model, epoch)", "calls it by another name"),
        ("model.eval(); evaluated.append(epoch); model.train()", "no function of its own"),
    ],
)
def test_where_something_hangs_on_it_all_are_kept(tmp_path: Path, call: str, why: str) -> None:
    site, evaluated = _trained(tmp_path, call, epochs=6)

    assert evaluated == list(range(6)) or "break" in call
    assert why in reason(site)


def test_it_can_be_forced(tmp_path: Path) -> None:
    site, evaluated = _trained(
        tmp_path, "score = evaluate(model, epoch)\n        if score > best: best = score", force=True
    )

    assert evaluated == [0, 1, 5, 9, 11]
    assert reason(site) == ""


@pytest.mark.parametrize(
    ("line", "why"), [("torch.save(model, '/dev/null')", "it saves"), ("schedule.step()", "it steps")]
)
def test_a_function_that_does_more_is_kept(tmp_path: Path, line: str, why: str) -> None:
    head = EVALUATE.replace("    model.train()", f"    schedule = torch.optim.lr_scheduler\n    if epoch < 0: {line}")

    site, evaluated = _trained(tmp_path, "evaluate(model, epoch)", head=head, epochs=6)

    assert evaluated == list(range(6))
    assert why in reason(site)


def test_a_method_is_found_by_its_class(tmp_path: Path) -> None:
    head = EVALUATE + (
        "\nclass Judge:\n    def judge(self, epoch):\n        model.eval()\n        for x in loader: model(x)\n"
        "        evaluated.append(epoch)\n"
    )

    _, evaluated = _trained(tmp_path, "Judge().judge(epoch)", head=head)

    assert evaluated == [0, 1, 5, 9, 11]


def test_eval_is_torchs_own_again() -> None:
    before = torch.nn.Module.eval

    with applied("cadence.eval", {"every": 4, "force": False}):
        assert torch.nn.Module.eval is not before

    assert torch.nn.Module.eval is before

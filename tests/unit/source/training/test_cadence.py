"""What certainly happens at each step, and what only when a setting, a number or an interval says so."""

from __future__ import annotations

import ast

import pytest

from flatout.source.code import Code
from flatout.source.project.loading import load_texts
from flatout.source.syntax.nodes import called_name
from flatout.source.training.cadence import (
    find_periodic_nodes,
    iterates_batches,
    runs_each_step,
    runs_each_step_if_enabled,
)
from flatout.source.training.regions import Region

STEP = """
for step, batch in enumerate(loader):
    loss = model(batch)
    loss.backward()
    optimizer.step()
    {}
"""


def probed(text: str) -> tuple[Code, Region, ast.Call]:
    code = Code(load_texts({"train.py": text}))
    found = [(region, call) for region, _, call in code.calls_each_step("probe")]
    assert len(found) == 1
    return code, *found[0]


def step(*lines: str) -> str:
    return STEP.format("\n    ".join(lines))


@pytest.mark.parametrize(
    "lines",
    [
        ("probe()",),
        ("if rank == 0:", "    probe()"),
        ("if is_main_process():", "    probe()"),
        ("if dist.get_rank() == 0 and writer is not None:", "    probe()"),
        ("if self.logger:", "    probe()"),
        ("for name in names:", "    probe()"),
        ("with torch.no_grad():", "    probe()"),
    ],
)
def test_checks_of_rank_and_writer_hold_all_along(lines: tuple[str, ...]) -> None:
    _, region, call = probed(step(*lines))

    assert runs_each_step(region, call)
    assert runs_each_step_if_enabled(region, call)


@pytest.mark.parametrize(
    ("lines", "usual"),
    [
        (("if args.images:", "    probe()"), True),
        (('if self.kind == "adam":', "    probe()"), True),
        (("if loss < best:", "    probe()"), False),
        (("if improved:", "    probe()"), False),
    ],
)
def test_settings_may_be_off_and_numbers_may_be_small(lines: tuple[str, ...], usual: bool) -> None:
    _, region, call = probed(step(*lines))

    assert not runs_each_step(region, call)
    assert runs_each_step_if_enabled(region, call) == usual


def test_what_stands_before_a_call_counts_for_what_is_called() -> None:
    helper = "def helper():\n    probe()\n"

    _, region, call = probed(helper + step("helper()"))
    assert runs_each_step(region, call)

    _, region, call = probed(helper + step("if loss < best:", "    helper()"))
    assert not runs_each_step(region, call)


@pytest.mark.parametrize(
    "head",
    ["for epoch in range(9):", "while epoch < 9:", "for episode in range(9):", "for _ in range(args.epochs):"],
)
def test_a_turn_may_be_longer_than_a_batch(head: str) -> None:
    _, region, _ = probed(f"{head}\n    model(x).backward()\n    optimizer.step()\n    probe()\n")

    assert not iterates_batches(region)


def test_a_turn_with_a_loop_that_runs_backward_is_longer_than_a_batch() -> None:
    text = "while True:\n    for part in parts:\n        model(part).backward()\n    optimizer.step()\n    probe()\n"
    _, region, _ = probed(text)

    assert not iterates_batches(region)


@pytest.mark.parametrize(
    ("test", "period"),
    [
        ("step % 5 == 0", 5),
        ("not step % 5", 5),
        ("(step + 1) % EVERY == 0", 7),
        ("step % unknown == 0", None),
        ("loss < best", None),
        ("rank == 0", 1),
    ],
)
def test_the_interval_is_read_where_it_is_known(test: str, period: int | None) -> None:
    code = Code(load_texts({"train.py": "EVERY = 7\n" + step(f"if {test}:", "    rare()")}))
    (region,) = code.training.regions

    found = [
        one.period
        for one in find_periodic_nodes(region, code.values)
        if isinstance(one.node, ast.Call) and called_name(one.node) == "rare"
    ]

    assert found == ([] if period is None else [period])

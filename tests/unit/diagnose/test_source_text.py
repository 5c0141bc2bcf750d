"""Where a script decides to evaluate, told from its source and the lines seen while it evaluated."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from flatout.diagnose.source_text import evaluated_at
from flatout.records.report import LineCost, Location
from flatout.store.run import StoredRun

_CALLED = """
def train(model, loader, validation):
    for epoch in range(3):
        for x, y in loader:
            model(x).sum().backward()
        score = check(model, validation)

@torch.no_grad()
def check(model, validation):
    for x, y in validation:
        model(x)
"""
_INLINE = """
for epoch in range(3):
    for x, y in loader:
        model(x).sum().backward()
    model.eval()
    for x, y in validation:
        model(x)
"""


def stored(begun_unix_s: float = 1e12) -> StoredRun:
    return cast("StoredRun", SimpleNamespace(source_until_unix_s=begun_unix_s))


def seen(file: Path, *lines: tuple[int, str]) -> list[LineCost]:
    return [LineCost(Location(str(file), line), "f", phase, 0.1, 1.0) for line, phase in lines]


def test_the_call_is_the_place_even_if_only_the_model_was_seen(tmp_path: Path) -> None:
    script, model = tmp_path / "train.py", tmp_path / "model.py"
    script.write_text(_CALLED)
    model.write_text("def forward(self, x):\n    return x\n")

    lines = [*seen(script, (5, "backward")), *seen(model, (2, "eval"))]

    assert evaluated_at(stored(), lines) == Location(str(script), 6)


def test_without_a_function_it_is_the_loop_over_the_validation_data(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(_INLINE)

    assert evaluated_at(stored(), seen(script, (4, "backward"), (7, "eval"))) == Location(str(script), 6)


def test_a_file_that_was_changed_since_tells_nothing(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(_CALLED)
    os.utime(script, (2_000, 2_000))

    assert evaluated_at(stored(1_000.0), seen(script, (5, "backward"), (11, "eval"))) is None


def test_two_calls_beside_the_training_leave_it_open(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(_CALLED.replace("score = check", "check(model, loader); score = 1\n        score = check"))

    assert evaluated_at(stored(), seen(script, (5, "backward"), (12, "eval"))) is None

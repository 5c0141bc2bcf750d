"""Syntax that another process checks: all errors come back, and a process that dies costs nothing but time."""

from __future__ import annotations

import json
import os

import psutil
import pytest

from flatout.source.project.loading import start_syntax_check
from flatout.source.syntax.module import Module


def modules(count: int) -> list[Module]:
    """Every tenth is no Python."""
    return [Module(f"f{n}.py", f"f{n}", "x = (\n" if n % 10 == 3 else f"x = {n}\n") for n in range(count)]


def wrong(known: list[Module]) -> list[str]:
    return [one.shown for one in known if one.error is not None]


@pytest.mark.parametrize("count", [20, 400])
def test_all_errors_come_back(count: int) -> None:
    known = modules(count)

    start_syntax_check(known)()

    assert wrong(known) == [f"f{n}.py" for n in range(3, count, 10)]
    assert all(one.error == (1, 5, "'(' was never closed") for one in known if one.error is not None)
    assert not any("tree" in vars(one) for one in known)  # or the memory of all trees is taken


def test_a_process_that_dies_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    parent, dumps = os.getpid(), json.dumps

    def failing(value: object) -> str:
        if os.getpid() != parent:
            raise MemoryError
        return dumps(value)

    monkeypatch.setattr("flatout.source.project.loading.json.dumps", failing)
    known = modules(200)

    start_syntax_check(known)()

    assert wrong(known) == [f"f{n}.py" for n in range(3, 200, 10)]


def test_no_process_is_left() -> None:
    before = psutil.Process().children()

    start_syntax_check(modules(200))()

    assert psutil.Process().children() == before

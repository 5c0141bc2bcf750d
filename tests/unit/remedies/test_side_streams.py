"""Whose call it is: the script's, torch's, or one of our own."""

from __future__ import annotations

import sys
from types import FrameType, ModuleType
from typing import Any

import pytest

from flatout.remedies.torch_hooks import is_called_by_script


def _asked(*modules: str) -> bool:
    """Functions of these modules call each other, the last asks."""
    answers: list[bool] = []

    def ask() -> None:
        frame: FrameType | None = sys._getframe(1)
        answers.append(is_called_by_script(frame))

    call: Any = ask
    for name in reversed(modules):
        module = ModuleType(name)
        exec("def call():\n    inner()", vars(module))
        vars(module)["inner"] = call
        call = module.call
    call()
    return answers[0]


@pytest.mark.parametrize(
    ("modules", "answer"),
    [
        (("__main__",), True),
        (("apex.parallel",), True),
        (("__main__", "torch.cuda.graphs"), False),
        (("__main__", "_flatout.remedies.transfer_async", "_flatout_attach.transfers"), True),
        (("__main__", "_flatout.remedies.sync.defer"), False),
        (("__main__", "_flatout.remedies.sync.defer", "_flatout.remedies.sync_skip"), False),
        (("__main__", "_flatout.feed.ahead"), False),
    ],
)
def test_the_first_frame_that_is_no_patch_decides(modules: tuple[str, ...], answer: bool) -> None:
    assert _asked(*modules) is answer

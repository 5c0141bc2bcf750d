"""What a copy to the device leaves behind, as far as that can be seen without one."""

from __future__ import annotations

import sys
from typing import Any

import torch

from flatout.attach.sites import Sites
from flatout.attach.tracer import Tracer, clock
from flatout.attach.transfers import TransferWatch


class Notes:
    """Stands for a recording."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, Any]] = []

    def text(self, what: str, value: object) -> None:
        self.texts.append((what, value))


def test_large_copies_are_looked_at_now_and_then_and_small_ones_never() -> None:
    notes, trouble = Notes(), list[Exception]()
    sites = Sites(lambda: notes)  # type: ignore[arg-type,return-value]
    watch = TransferWatch(torch, Tracer(lambda codes, moments: None), sites, trouble.append)
    pictures = torch.randint(0, 256, (8, 3, 64, 64)).float() / 255

    for _ in range(300):
        watch._copied(clock(), pictures, False, sys._getframe())
    watch._copied(clock(), torch.zeros(16), False, sys._getframe())
    watch._copied(clock(), torch.zeros(64, 64, 64).to_sparse(), False, sys._getframe())

    assert not trouble
    narrow = [value for what, value in notes.texts if what == "narrow"]
    assert 3 < len(narrow) < 10
    (kind,) = narrow[-1]["kinds"]
    assert (kind["dtype"], kind["narrow"], kind["bytes"]) == ("float32", "uint8", len(narrow) * pictures.nbytes)

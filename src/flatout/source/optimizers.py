"""Optimizers of torch that a file makes: calls of its classes, by whatever name the file has for them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from flatout.source.module import Function, Module
from flatout.source.naming import full_name
from flatout.source.nodes import called_name

# Those that take `fused=`, and those that only take `foreach=`.
FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
_OTHERS = ("Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "Muon", "Adafactor")


@dataclass(frozen=True, slots=True)
class Optimizer:
    call: ast.Call
    function: Function

    @property
    def name(self) -> str:
        return called_name(self.call)

    def given(self, *names: str) -> ast.keyword | None:
        return next((one for one in self.call.keywords if one.arg in names), None)


def optimizers_in(module: Module) -> Iterator[Optimizer]:
    """In the order of the text, as far as a kind goes."""
    if "optim" not in module.text:
        return
    for name in (*FUSED, *_OTHERS):
        for call, function in module.calls.get(name, ()):
            if full_name(call.func, module).startswith("torch.optim."):
                yield Optimizer(call, function)

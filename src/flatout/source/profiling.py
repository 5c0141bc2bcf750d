"""Profilers that are open around a whole training, or in every step of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from flatout.source.code import Code
from flatout.source.guards import each_turn
from flatout.source.module import Function, Module
from flatout.source.naming import full_name
from flatout.source.nodes import LOOPS, argument, called_name, dotted, is_open, within

_OF_TORCH = {"torch.profiler.profile", "torch.autograd.profiler.profile", "torch.autograd.profiler.emit_nvtx"}
_OF_PYTHON = {"cProfile.Profile", "profile.Profile"}
_WORDS = ("profile", "emit_nvtx", "Profile", "profiler")
# Made to be profiled, or a test of it.
_MEANT = re.compile(r"profil|bench|trace|test", re.I)
# Steps that nobody would call a training.
_FEW = 200


@dataclass(frozen=True, slots=True)
class Profiled:
    """`what` is the profiler, as the user wrote it."""

    module: Module
    call: ast.Call
    what: str


def profiled_in(code: Code) -> Iterator[Profiled]:
    modules = {id(one): one for word in _WORDS for one in code.project.mentioning(word)}
    for module in modules.values():
        if not code.training.takes_part(module) or _MEANT.search(module.name.split(".")[-1]):
            continue
        for function in module.functions:
            if not _MEANT.search(function.name):
                yield from _in_function(function, code)
        yield from _trainers(module, code)


def _in_function(function: Function, code: Code) -> Iterator[Profiled]:
    opened: set[int] = set()
    for turn in each_turn(function.node.body, function):
        statement = turn.statement
        if not isinstance(statement, ast.With | ast.AsyncWith) or id(statement) in opened:
            continue
        opened.add(id(statement))
        for item in statement.items:
            call = item.context_expr
            if isinstance(call, ast.Call) and _records(call, function, code) and _trains(statement, function, code):
                yield Profiled(function.module, call, dotted(call.func))


def _records(call: ast.Call, function: Function, code: Code) -> bool:
    """Does it write down all that is done in its body?"""
    whole = full_name(call.func, function.module)
    if whole in _OF_PYTHON:
        return True
    if whole not in _OF_TORCH or is_open(call) or argument(call, "schedule") is not None:
        return False
    enabled = argument(call, "enabled", 0) if whole != "torch.profiler.profile" else None
    value = code.values.of(enabled, function) if enabled is not None else None
    # A switch that is a variable may well be off.
    return enabled is None or (value is not None and value.value is True)


def _trains(statement: ast.With | ast.AsyncWith, function: Function, code: Code) -> bool:
    """A training loop runs inside, itself or by a call, and more than a few steps of it."""
    loops = {id(loop): of for loop, of in code.training.loops}
    holders = {id(of): loop for loop, of in code.training.loops}
    for one in (node for part in statement.body for node in within(part)):
        if isinstance(one, LOOPS) and id(one) in loops:
            return not _is_short(one)
        if isinstance(one, ast.Call):
            for callee in code.project.resolve(one, function):
                if id(callee) in holders:
                    return not _is_short(holders[id(callee)])
    # Within the step: around its forward or backward pass.
    in_step = any(turn.statement is statement for region in code.training.regions for turn in region.turns())
    return in_step and any(
        isinstance(one, ast.Call) and called_name(one) == "backward" for part in statement.body for one in within(part)
    )


def _is_short(loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """It ends after a few steps: `for i in range(20)`, or a counter that breaks out of it."""
    if isinstance(loop, ast.For | ast.AsyncFor):
        count = loop.iter.args[-1] if isinstance(loop.iter, ast.Call) and loop.iter.args else None
        few = isinstance(count, ast.Constant) and isinstance(count.value, int) and count.value <= _FEW
        if few and isinstance(loop.iter, ast.Call) and called_name(loop.iter) in ("range", "islice"):
            return True
    return any(isinstance(one, ast.Break) for statement in loop.body for one in within(statement))


def _trainers(module: Module, code: Code) -> Iterator[Profiled]:
    """`Trainer(profiler="pytorch")` of Lightning; "simple" takes next to nothing."""
    if "ightning" not in module.text:
        return
    for call, function in module.calls.get("Trainer", ()):
        given = argument(call, "profiler")
        value = code.values.of(given, function) if given is not None else None
        if value is not None and value.value in ("pytorch", "advanced"):
            yield Profiled(module, call, f"profiler={value.value!r}")

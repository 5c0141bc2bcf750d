"""How often a node of a training step certainly runs: at each step, at each k-th, or when a test says so.

`Region.main_path()` takes a setting such as `if args.images:` for on. Here only what runs whatever the settings are
counts; checks of rank, and of whether there is a writer at all, have the same answer for the whole run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flatout.source.flow.guards import branch_frequency, leaves_block
from flatout.source.flow.values import Values
from flatout.source.syntax.module import Function
from flatout.source.syntax.nodes import (
    DEFINITIONS,
    LOOPS,
    all_names_in,
    bound_names,
    children,
    is_call,
    last_name,
    walk_body,
    walk_scope,
)
from flatout.source.training.regions import Region

# Loops whose iterations take far longer than a batch.
_LONG_TURNS = re.compile(r"epoch|^ep$|episode|round|task|fold|trial|stage|phase|experiment|generation", re.I)
_ACCUMULATES = re.compile(r"accum|micro_?batch|(^|_)ga_steps", re.I)
_STEP = re.compile(r"(?<!test_)(step|batch|iteration|update|learn|compute_loss)", re.I)
_OF_RANK = re.compile(
    r"rank|is_main|is_master|main_process|master|global_zero|is_primary|is_root|local_process|world_size|gpu_id", re.I
)
_WRITER = re.compile(r"writer|logger|wandb|tensorboard|(^|_)tb(_|$)|mlflow|comet|neptune", re.I)
_LOADER = re.compile(r"loader|dataloader|(^|_)dl$|batches|data_iter|train_iter", re.I)


@dataclass(frozen=True, slots=True)
class PeriodicNode:
    """A node that runs at every `period`-th step."""

    node: ast.AST
    period: int


def runs_each_step(region: Region, node: ast.AST) -> bool:
    """Does a node of the region run at each step, whatever the settings and the losses are?"""
    return iterates_batches(region.root) and all(_is_constant_for_run(test) for test in _tests_on_the_way(region, node))


def runs_each_step_if_enabled(region: Region, node: ast.AST) -> bool:
    """Does a node run at each step if settings enable it, and not only when some number is large or small?"""
    return all(_is_constant_for_run(test) or _is_of_settings(test) for test in _tests_on_the_way(region, node))


def _tests_on_the_way(region: Region, node: ast.AST) -> Iterator[ast.expr]:
    """Tests around a node, and around the calls that lead from the training loop to its region."""
    for caller, call in region.call_chain(node):
        yield from tests_in_region(caller, call)


def find_frequent_nodes(region: Region, values: Values, most: int) -> Iterator[PeriodicNode]:
    """All nodes of the region that certainly run at every `most`-th step at least."""
    if not iterates_batches(region.root) or (
        region.call_site is not None and not runs_each_step(region.call_site.caller, region.call_site.call)
    ):
        return
    for node in find_periodic_nodes(region, values):
        if node.period <= most:
            yield node


def iterates_batches(root: Region) -> bool:
    """Is an iteration of the loop a batch, not an epoch or an episode that ends in one update?"""
    loop = root.loop
    if loop is None:
        # Called by a framework, or from outside: `train` may be a whole training, `train_step` is a step.
        return bool(_STEP.search(root.function.name))
    head: ast.expr = loop.test if isinstance(loop, ast.While) else loop.iter
    named = all_names_in(head)
    if isinstance(loop, ast.For | ast.AsyncFor):
        named |= bound_names(loop.target)
    if any(_LONG_TURNS.search(name) for name in named) and not any(_LOADER.search(name) for name in named):
        return False
    return not any(_is_inner_training_loop(node) for node in walk_body(loop.body))


def find_periodic_nodes(region: Region, values: Values) -> Iterator[PeriodicNode]:
    """All nodes of the region that run at each step, or at each k-th where k is known."""
    yield from _block(region.body, region.function, values, 1)


def _block(body: Sequence[ast.stmt], function: Function, values: Values, period: int) -> Iterator[PeriodicNode]:
    for statement in body:
        if isinstance(statement, DEFINITIONS):
            continue
        if not isinstance(statement, ast.If):
            yield from _parts(statement, function, values, period)
            continue
        if _is_constant_for_run(statement.test):
            yield from _block(statement.body, function, values, period)
        elif (every := _period_of(statement.test, function, values)) is not None:
            yield from _block(statement.body, function, values, period * every)
        elif leaves_block(statement.body) and branch_frequency(statement.test, function)[1] == "seldom":
            # `if step % 100: continue`: what follows runs in the other iterations.
            rest = _period_of(ast.UnaryOp(ast.Not(), statement.test), function, values)
            if rest is None:
                return
            period *= rest


def _parts(statement: ast.stmt, function: Function, values: Values, period: int) -> Iterator[PeriodicNode]:
    stack: list[ast.AST] = [statement]
    while stack:
        here = stack.pop()
        yield PeriodicNode(here, period)
        below = [child for child in children(here) if not isinstance(child, DEFINITIONS)]
        plain = [child for child in below if not isinstance(child, ast.stmt | ast.IfExp | ast.ExceptHandler)]
        inner = [child for child in below if isinstance(child, ast.stmt)]
        yield from _block(inner, function, values, period)
        stack += reversed(plain)


def _period_of(test: ast.expr, function: Function, values: Values) -> int | None:
    """The k of `step % k == 0`, `not step % k`, `not (i + 1) % args.k != 0`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = test.operand
        differs = isinstance(inner, ast.Compare) and len(inner.ops) == 1 and isinstance(inner.ops[0], ast.NotEq)
        left = inner.left if isinstance(inner, ast.Compare) and differs else inner
    elif isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        left = test.left
    else:
        return None
    if not (isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod)):
        return None
    known = values.of(left.right, function)
    return known.value if known is not None and type(known.value) is int and known.value > 0 else None


def _is_constant_for_run(test: ast.expr) -> bool:
    """Does a test have the same value all through a run: a check of rank, or of whether there is a writer?"""
    if isinstance(test, ast.BoolOp):
        return all(_is_constant_for_run(operand) for operand in test.values)
    if isinstance(test, ast.UnaryOp):
        return _is_constant_for_run(test.operand)
    names = all_names_in(test)
    if any(_OF_RANK.search(name) for name in names):
        return not any(isinstance(node, ast.Mod) for node in ast.walk(test))
    if isinstance(test, ast.Name | ast.Attribute):
        return bool(_WRITER.search(last_name(test)))
    is_there = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is | ast.IsNot)
    return is_there and any(_WRITER.search(name) for name in names)


def _is_of_settings(test: ast.expr) -> bool:
    """`if self.kind == "adam"`, `if args.ema`, `if p.grad is None`; not `if norm > 1` or a flag that the step sets."""
    if isinstance(test, ast.BoolOp):
        return all(_is_constant_for_run(operand) or _is_of_settings(operand) for operand in test.values)
    if isinstance(test, ast.UnaryOp):
        return _is_of_settings(test.operand)
    if isinstance(test, ast.Compare):
        return not any(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in test.ops)
    return not isinstance(test, ast.Name)


def tests_in_region(region: Region, node: ast.AST) -> Iterator[ast.expr]:
    """The tests of all branches around a node of a region; an `except` is a test that fails."""
    for parent, child in region.ancestors(node):
        if isinstance(parent, ast.If | ast.IfExp) and child is not parent.test:
            yield parent.test
        elif isinstance(parent, ast.ExceptHandler):
            yield ast.Constant(False)


def _is_inner_training_loop(node: ast.AST) -> bool:
    """Is it a loop that runs backward, so that an iteration around it covers many batches, tasks or parts?"""
    head = node.iter if isinstance(node, ast.For | ast.AsyncFor) else None
    if head is not None and any(_ACCUMULATES.search(name) for name in all_names_in(head)):
        return False  # gradient accumulation: several batches to one step
    return isinstance(node, LOOPS) and any(is_call(call, "backward") for call in walk_scope(node))

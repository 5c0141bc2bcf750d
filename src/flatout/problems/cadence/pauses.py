"""Pauses of a training step in source: evaluations, checkpoints, pictures and output, and how often they come."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from flatout.problems.found import step_of
from flatout.records.message import Message, message
from flatout.source.code import Code
from flatout.source.flow.guards import is_evaluation
from flatout.source.syntax.module import Function, full_name
from flatout.source.syntax.nodes import (
    all_names_in,
    called_name,
    dotted_name,
    has_decorator,
    short_text,
    walk_body,
    walk_scope,
)
from flatout.source.training.cadence import find_frequent_nodes, runs_each_step
from flatout.source.training.regions import Region

_SAVES = {
    "save_pretrained",
    "save_checkpoint",
    "save_model",
    "save_state",
    "save_weights",
    "save_network",
    "save_networks",
}
_HELPER = re.compile(r"^_?(save_(checkpoint|ckpt|model|weights|snapshot|state|net)|snapshot|checkpoint)", re.I)
_PICTURES = {
    "add_image", "add_images", "add_figure", "add_histogram", "add_video", "add_embedding", "add_mesh", "savefig",
    "imwrite", "imsave", "save_image", "add_pr_curve", "log_image", "log_images", "log_figure", "add_graph",
}  # fmt: skip
_OF_WANDB = {"Image", "Histogram", "Video", "Audio", "Object3D"}
_IN_MEMORY = re.compile(r"buf|bytes|stream", re.I)
_LOGGER = re.compile(r"^_?(logger|log|logging|LOGGER|LOG)$")
_LOADER = re.compile(r"loader|dataloader|(^|_)(dl|batches|dataset|data|ds)$|iterator", re.I)
_NO_GRADIENTS = ("no_grad", "inference_mode")
_OFTEN = 10


@dataclass(frozen=True, slots=True)
class Pause:
    """A node that makes every `period`-th step pause."""

    region: Region
    node: ast.AST
    period: int = 1


def how_often(pause: Pause) -> Message:
    if pause.period == 1:
        return message("problems.in_step", step=step_of(pause.region))
    return message("problems.every_few_steps", period=pause.period)


def find_checkpoints(code: Code) -> Iterator[Pause]:
    return _often(code, _saves)


def find_pictures(code: Code) -> Iterator[Pause]:
    def draws(call: ast.Call, function: Function, _: Code) -> bool:
        name = called_name(call)
        return name in _PICTURES or (name in _OF_WANDB and full_name(call.func, function.module) == f"wandb.{name}")

    return _often(code, draws)


def _often(code: Code, wanted: Callable[[ast.Call, Function, Code], bool]) -> Iterator[Pause]:
    """Calls of a kind at each step or every few steps; none inside another."""
    seen: set[int] = set()
    for region in code.training.regions:
        for inner in find_frequent_nodes(region, code.values, _OFTEN):
            node = inner.node
            if isinstance(node, ast.Call) and id(node) not in seen and wanted(node, region.function, code):
                seen |= {id(part) for part in walk_scope(node)}
                # The calls that it makes for that are the same pause.
                seen |= {id(call) for callee in code.project.resolve(node, region.function) for call in callee.calls}
                yield Pause(region, node, inner.period)


def _saves(call: ast.Call, function: Function, code: Code) -> bool:
    """Does it write a checkpoint, by its name, or as a function of the project that does?"""
    name = called_name(call)
    if not (name == "save" or name in _SAVES or _HELPER.search(name)):
        return False
    callees = code.project.resolve(call, function)
    if callees:
        return any(_writes_checkpoint(inner, callee) for callee in callees for inner in callee.calls)
    return _writes_checkpoint(call, function)


def _writes_checkpoint(call: ast.Call, function: Function) -> bool:
    name = called_name(call)
    if name != "save":
        return name in _SAVES or bool(_HELPER.search(name))
    # `image.save(path)` and `np.save` are not checkpoints, and a manager's `save(step)` may have an interval.
    into = short_text(call.args[1]) if len(call.args) > 1 else ""
    return full_name(call.func, function.module) in ("torch.save", "xm.save") and not _IN_MEMORY.search(into)


def find_printed_lines(code: Code) -> Iterator[Pause]:
    """Lines of output in each step, unless they are a sync, which is a problem of its own."""
    waits = {
        (id(sync.region.module), line)
        for sync in code.syncs
        for line in range(sync.node.lineno, (sync.node.end_lineno or sync.node.lineno) + 1)
    }
    for region, _, node in code.calls_each_step("print", "info", "write"):
        if not runs_each_step(region, node):
            continue
        lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if (
            _prints(node)
            and not _hands_on(node, region.function)
            and not any((id(region.module), line) in waits for line in lines)
        ):
            yield Pause(region, node)


def _prints(call: ast.Call) -> bool:
    func = call.func
    if isinstance(func, ast.Name):
        # `print()` to a file is not shown to anybody.
        return func.id == "print" and not any(keyword.arg == "file" for keyword in call.keywords)
    owner = dotted_name(func.value) if isinstance(func, ast.Attribute) else ""
    if called_name(call) == "write":
        return owner in ("sys.stdout", "sys.stderr", "tqdm", "tqdm.tqdm")
    return called_name(call) == "info" and bool(_LOGGER.search(owner.split(".")[-1]))


def _hands_on(call: ast.Call, function: Function) -> bool:
    """`def log(text): print(text)`: its callers decide what is written, and how often."""
    names = function.parameters
    return bool(call.args) and all(
        isinstance(given, ast.Starred) or (isinstance(given, ast.Name) and given.id in names) for given in call.args
    )


def find_evaluations(code: Code) -> Iterator[Pause]:
    """Whole passes over the data without gradients, at each step or at every few."""
    seen: set[int] = set()
    for region in code.training.regions:
        for inner in find_frequent_nodes(region, code.values, _OFTEN) if region.loop is not None else ():
            node = inner.node
            if id(node) not in seen and (
                (isinstance(node, ast.Call) and _calls_evaluation(node, region.function, code))
                # `for x, y in val_loader:` in the body of the training loop.
                or (
                    isinstance(node, ast.For)
                    and _goes_over_data(node)
                    and any(is_evaluation(name) for name in all_names_in(node.iter))
                )
            ):
                seen |= {id(part) for part in walk_scope(node)}
                yield Pause(region, node, inner.period)


def _calls_evaluation(call: ast.Call, function: Function, code: Code) -> bool:
    for callee in code.project.resolve(call, function):
        if callee.definition is None or not is_evaluation(callee.name):
            continue
        loops = [node for node in walk_body(callee.node.body) if isinstance(node, ast.For)]
        is_without_gradients = has_decorator(callee.definition, _NO_GRADIENTS) or any(
            called_name(inner) in (*_NO_GRADIENTS, "eval", "set_grad_enabled") for inner in callee.calls
        )
        if is_without_gradients and any(_goes_over_data(loop) for loop in loops):
            return True
    return False


def _goes_over_data(loop: ast.For) -> bool:
    """Does it iterate over a whole loader, without leaving after a few batches?"""
    leaves = any(isinstance(node, ast.Break | ast.Return) for node in walk_body(loop.body))
    return not leaves and any(_LOADER.search(name) for name in all_names_in(loop.iter))

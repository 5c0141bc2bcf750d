"""Where the script decides to evaluate: the call of its evaluation, or the loop over its validation data."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from flatout.diagnose.source_text import whole_file
from flatout.records.report import LineCost, Location
from flatout.store.run import StoredRun

_NO_GRADIENTS = ("no_grad", "inference_mode", "eval", "set_grad_enabled")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class _Parsed:
    file: str
    tree: ast.Module
    functions: tuple[_Function, ...]
    evaluating: tuple[_Function, ...]
    # By the name of what is called: the lines.
    calls: dict[str, list[int]]


def evaluated_at(run: StoredRun, lines: Sequence[LineCost]) -> Location | None:
    """From the lines seen while evaluating; None where the source does not tell."""
    parsed = [one for file in _files(lines) if (one := _parse(file, whole_file(run, file))) is not None]
    seen = _weights(lines, ("eval",))
    function, place = _evaluation(parsed, seen)
    if place is None:
        return None
    name = None if function is None else function.name
    calls = [Location(module.file, line) for module in parsed for line in module.calls.get(name or "", ())]
    trained = _weights(lines, ("forward", "backward", "optimizer", "data"))
    training = {_function_at(parsed, line) for line in trained}
    beside = [call for call in calls if _function_at(parsed, call) in training]
    # A call beside the training is the one; so is the only call there is.
    for found in (beside, calls):
        if len(found) == 1:
            return found[0]
    return place if not calls else None


def _files(lines: Sequence[LineCost]) -> list[str]:
    return list(dict.fromkeys(line.location.file for line in lines if line.phase != "data"))


@lru_cache(maxsize=16)  # a run that goes on is judged again and again, and its source stays as it was
def _parse(file: str, text: str) -> _Parsed | None:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    nodes = list(ast.walk(tree))
    functions = tuple(node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    calls: dict[str, list[int]] = defaultdict(list)
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(called := node.func, ast.Attribute | ast.Name):
            calls[called.attr if isinstance(called, ast.Attribute) else called.id].append(node.lineno)
    return _Parsed(file, tree, functions, tuple(filter(_evaluates, functions)), calls)


def _weights(lines: Sequence[LineCost], phases: Sequence[str]) -> dict[Location, float]:
    found: dict[Location, float] = defaultdict(float)
    for line in lines:
        if line.phase in phases:
            found[line.location] += line.ms
    return found


def _evaluation(parsed: Sequence[_Parsed], seen: dict[Location, float]) -> tuple[_Function | None, Location | None]:
    """The function that evaluates, if it is one; and where it, or else the loop that evaluates, begins."""
    found = [
        (_weight(function, module.file, seen), module.file, function)
        for module in parsed
        for function in module.evaluating
    ]
    # The innermost line is mostly the model's or the dataset's own: then the only function in question has to be it.
    likely = [weighed for weighed in found if weighed[0]] or found
    best = max(likely, key=lambda weighed: weighed[0], default=None)
    if best is not None and (best[0] or len(likely) == 1):
        return best[2], Location(best[1], best[2].lineno)
    return None, _inline_loop(parsed, seen)


def _weight(node: _Function | ast.For, file: str, seen: dict[Location, float]) -> float:
    last = node.end_lineno or node.lineno
    return sum(ms for place, ms in seen.items() if place.file == file and node.lineno <= place.line <= last)


def _evaluates(function: _Function) -> bool:
    names = {node.attr if isinstance(node, ast.Attribute) else node.id for node in _names(function)}
    loops = any(isinstance(node, ast.For) for node in ast.walk(function))
    return loops and bool(names & set(_NO_GRADIENTS)) and not _trains(function)


def _inline_loop(parsed: Sequence[_Parsed], seen: dict[Location, float]) -> Location | None:
    """Evaluation in the midst of the training loop: the loop over the validation data, which has no backward in it."""
    loops = [
        (_weight(node, module.file, seen), Location(module.file, node.lineno))
        for module in parsed
        for node in ast.walk(module.tree)
        if isinstance(node, ast.For) and not _trains(node)
    ]
    best = max(loops, key=lambda loop: loop[0], default=None)
    return best[1] if best is not None and best[0] else None


def _trains(node: ast.AST) -> bool:
    return any(isinstance(name, ast.Attribute) and name.attr == "backward" for name in _names(node))


def _names(node: ast.AST) -> Iterator[ast.Attribute | ast.Name]:
    return (name for name in ast.walk(node) if isinstance(name, ast.Attribute | ast.Name))


def _function_at(parsed: Sequence[_Parsed], place: Location) -> tuple[str, int]:
    """The file and first line of the innermost function around a line; line 0 for the module itself."""
    around = [
        function.lineno
        for module in parsed
        if module.file == place.file
        for function in module.functions
        if function.lineno <= place.line <= (function.end_lineno or 0)
    ]
    return place.file, max(around, default=0)

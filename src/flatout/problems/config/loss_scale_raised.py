"""The code raises the loss scale where it has to be lowered.

What it is: after a NaN or an overflow the code multiplies the loss scale, or a scaler is made that grows where it
should back off. It is common advice: "NaN with FP16: raise loss_scale".

Why the GPU idles: it does not idle, its work is wasted. An overflow means the scaled gradients do not fit into float16;
a larger scale makes the next step overflow as well, its update is skipped, and so on. Only underflow (gradients that
become zero) asks for a larger scale. The scale itself has no effect on speed.

How it shows in source: a branch for NaN, inf or overflow in which a scale is multiplied by more than 1 (or divided by
less); `GradScaler(growth_factor=…)` of at most 1 or `backoff_factor=…` of at least 1; a comment that says so.

The fix: halve it, or leave it to the scaler:

    if overflow:
        scale = max(scale / 2, 1.0)

    scaler = torch.amp.GradScaler("cuda")   # halves at an overflow, doubles after 2,000 good steps

or use bfloat16, which needs no scale.

What to expect: steps that are no longer skipped.

When it is fine: never after an overflow; after underflow raising it is right.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from flatout.problems.found import FoundInSource
from flatout.records.message import Message, message
from flatout.records.source import Place
from flatout.source.code import Code
from flatout.source.flow.values import Values
from flatout.source.syntax.module import Function, Module, own_nodes
from flatout.source.syntax.nodes import all_names_in, argument, called_name, is_call, own_name, short_text, walk_scope

CODE = "CF804"

_SCALE = re.compile(
    r"(^|_)(loss_?scale|grad_?scale|amp_?scale|cur_?scale|scale|loss_?scaling|scaling|scale_factor)$", re.I
)
_BROKEN = re.compile(r"isnan|isinf|is_nan|is_inf|has_nan|has_inf|found_inf|overflow|(^|_)nan(_|$)|(^|_)inf(_|$)", re.I)
_SOUND = re.compile(r"isfinite|is_finite|all_finite|no_overflow|underflow", re.I)
_SINCE = re.compile(r"last|since|iter|step|window|count|tolerance", re.I)
# Most files with a scale in them never change it by a factor.
_RAISING = re.compile(r"scal\w*\s*[*/]=|scal\w*\s*=[^=\n][^\n]*scal[^\n]*[*/]|\.update\([^\n]*[*/]", re.I)
_LOSS_SCALE = re.compile(r"loss_?scal", re.I)
_COMMENT = re.compile(r"#[^\n]*")
_TROUBLE = r"(?:\bnan\b|overflow|溢出)"
_MORE = r"(?:increase|raise|enlarge|double|higher|larger|bigger|增大|调大|提高|加大|增加)"
_WORDS = ("nan", "NaN", "NAN", "overflow", "溢出")
_ADVICE = re.compile(
    rf"{_TROUBLE}.{{0,60}}?{_MORE}.{{0,20}}(?:scale|缩放)|{_MORE}.{{0,20}}(?:loss[_ -]?scale|缩放).{{0,40}}?{_TROUBLE}",
    re.I,
)
_OPPOSITE = re.compile(
    r"lower|decrease|reduc|small|halv|underflow|not\b|n't|never|avoid|until|caus|lead|result|下溢|减小|降低|不要|导致",
    re.I,
)
_MOST_CONFIG_TEXT = 64 << 10


def in_source(code: Code) -> Iterator[FoundInSource]:
    for module in code.project.modules:
        text = module.text
        if "_factor" in text and "GradScaler" in text:
            yield from _swapped_factors(module, code.values)
        # Does it speak of what is not finite? Cheaper to ask than what is done about it.
        may_break = "scale" in text and any(word in text for word in ("nan", "overflow", "_inf", "isinf", "finite"))
        if may_break and _RAISING.search(text) and (code.training.takes_part(module) or _LOSS_SCALE.search(text)):
            yield from _find_raises(module, code.values)
        yield from (_advice(module.at(line)) for line in _find_advice(text))
    for file in code.project.configs:
        text = code.project.read(file)
        if len(text) <= _MOST_CONFIG_TEXT:
            yield from (_advice(Place(file, line)) for line in _find_advice(text))


def _find_advice(text: str) -> Iterator[int]:
    if "scale" not in text or not any(word in text for word in _WORDS):
        return
    for comment in _COMMENT.finditer(text):
        said = _ADVICE.search(comment[0])
        if said is not None and not _OPPOSITE.search(comment[0]):
            yield text.count("\n", 0, comment.start()) + 1


def _advice(place: Place) -> FoundInSource:
    return FoundInSource(
        place=place,
        cause=message("cf804.source_comment"),
        change=message("cf804.source_change"),
        severity="low",
    )


def _swapped_factors(module: Module, values: Values) -> Iterator[FoundInSource]:
    for call, function in module.calls.get("GradScaler", ()):
        for name, sign, cause in (
            ("growth_factor", 1, "cf804.source_growth"),
            ("backoff_factor", -1, "cf804.source_backoff"),
        ):
            given = argument(call, name)
            known = None if given is None else _number(given, function, values)
            if given is not None and known is not None and sign * (known - 1) <= 0:
                yield FoundInSource(
                    place=module.place(given),
                    cause=Message(cause, {"value": known}),
                    change=message("cf804.source_leave_out", argument=name),
                )


def _number(node: ast.expr, function: Function, values: Values) -> float | None:
    known = values.of(node, function)
    is_one = known is not None and isinstance(known.value, int | float) and not isinstance(known.value, bool)
    return float(known.value) if known is not None and is_one else None


def _find_raises(module: Module, values: Values) -> Iterator[FoundInSource]:
    for function in module.functions:
        for node in own_nodes(function):
            if not isinstance(node, ast.If):
                continue
            for statement in _overflow_branch(node):
                for inner in walk_scope(statement):
                    if _raises(inner, function, values):
                        yield FoundInSource(
                            place=module.place(inner),
                            cause=message(
                                "cf804.source_raised", code=short_text(inner, 40), test=short_text(node.test, 40)
                            ),
                            change=message("cf804.source_change"),
                        )


def _overflow_branch(node: ast.If) -> list[ast.stmt]:
    """The branch for a NaN or an overflow; none where that cannot be told."""
    test, is_turned = node.test, False
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, is_turned = test.operand, not is_turned
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and not is_turned:
        # `if overflow and dynamic:`; what holds in the other branch is not known.
        return (
            node.body if any(_is_broken(value) and not isinstance(value, ast.UnaryOp) for value in test.values) else []
        )
    names = " ".join(all_names_in(test))
    if _SOUND.search(names) and not isinstance(test, ast.BoolOp):
        body = node.body if is_turned else node.orelse
    elif _is_broken(test):
        body = node.orelse if is_turned else node.body
    else:
        return []
    return [statement for statement in body if not isinstance(statement, ast.If)] if body is node.orelse else body


def _is_broken(node: ast.expr) -> bool:
    names = all_names_in(node)
    if any(_SOUND.search(name) or _SINCE.search(name) for name in names):
        return False
    # `(step - last_overflow) % window`: that it is long ago.
    return any(_BROKEN.search(name) for name in names) and not any(
        isinstance(inner, ast.BinOp) for inner in ast.walk(node)
    )


def _raises(node: ast.AST, function: Function, values: Values) -> bool:
    if isinstance(node, ast.AugAssign):
        return _is_scale(node.target) and _grows(node.op, node.value, function, values)
    if isinstance(node, ast.Assign):
        return any(_is_scale(target) for target in node.targets) and _is_larger(node.value, function, values)
    if is_call(node, "update") and isinstance(node.func, ast.Attribute):
        given = argument(node, "new_scale", 0)
        return given is not None and _is_larger(given, function, values)
    return False


def _is_larger(node: ast.expr, function: Function, values: Values) -> bool:
    """`scale * 2`, `min(scale * 2, most)`, `scaler.get_scale() * 2`."""
    if is_call(node, "min", "float", "int") and node.args:
        return any(_is_larger(arg, function, values) for arg in node.args)
    if not isinstance(node, ast.BinOp) or not _is_scale(node.left):
        return False
    return _grows(node.op, node.right, function, values)


def _grows(op: ast.operator, by: ast.expr, function: Function, values: Values) -> bool:
    known = _number(by, function, values)
    if known is None:
        return False
    return known > 1 if isinstance(op, ast.Mult) else isinstance(op, ast.Div) and 0 < known < 1


def _is_scale(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return called_name(node) == "get_scale"
    return bool(_SCALE.search(own_name(node)))

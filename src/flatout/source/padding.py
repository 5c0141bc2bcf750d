"""Where the sequences of a training are filled up to one fixed length."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from flatout.source.code import Code
from flatout.source.guards import is_evaluation
from flatout.source.module import Function, Module, own_nodes
from flatout.source.nodes import argument, called_name, dotted, parameters
from flatout.source.values import Value
from flatout.source.whole import near

_TOKENIZER = re.compile(r"token|\btok\b|encode_plus|processor", re.I)
# Text that a frozen model is conditioned on has the length that model was made for.
_CONDITIONED = ("diffusers", "CLIPTokenizer", "CLIPText", "xla_model", "torch_xla", "tensorflow")
_ASIDE = re.compile(r"metric|eval|infer|condition|serv|demo", re.I)
_FILLING = re.compile(r"-\s*(len\(|\w+\.(shape|size)|\w*length)")
# What CLIP and its like were trained with: their text is that short.
_SHORT = 77
_LENGTH = re.compile(
    r"^(self\.)?(\w+\.)*_?(max_?(seq|len|tok|src|tgt|text|input|target|sent|word|source)\w*|seq(uence)?_?len(gth)?|maxlen)$",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Padded:
    """`node` is what fills up; `value` is the setting that makes it so, where there is one."""

    function: Function
    node: ast.AST
    value: Value | None
    length: str


def padded_in(code: Code) -> Iterator[Padded]:
    modules = {id(m): m for whole in code.wholes if whole.is_on_gpu for m in near(whole)}
    for module in modules.values():
        text = module.text
        if _ASIDE.search(module.shown) or any(one in text for one in _CONDITIONED):
            continue
        if "max_length" in text and "pad" in text:
            yield from _by_tokenizer(module, code)
        if "def __getitem__" in text and ("max" in text or "len" in text) and _FILLING.search(text):
            yield from _by_hand(module, code)


def _by_tokenizer(module: Module, code: Code) -> Iterator[Padded]:
    for function in module.functions:
        if is_evaluation(function.name):
            continue
        for call in function.calls:
            # The second is how it was written before transformers 3.
            given = argument(call, "padding") or argument(call, "pad_to_max_length")
            if given is None or not _TOKENIZER.search(f"{dotted(call.func)} {called_name(call)}"):
                continue
            value = code.values.of(given, function)
            wanted = "max_length" if argument(call, "padding") is not None else True
            if value is not None and value.value == wanted:
                length = argument(call, "max_length")
                known = code.values.of(length, function) if length is not None else None
                if known is not None and known.value == _SHORT:
                    continue
                yield Padded(function, given, value, "" if length is None else ast.unparse(length))


def _by_hand(module: Module, code: Code) -> Iterator[Padded]:
    """`ids + [0] * (self.max_len - len(ids))` in what makes a sample of a dataset."""
    for function in module.functions:
        if function.owner is None or not _makes_samples(function, code):
            continue
        for node in own_nodes(function):
            lacking = _fill(node)
            if lacking is not None and _is_fixed(lacking, function):
                yield Padded(function, node, None, ast.unparse(lacking))
                break


def _makes_samples(function: Function, code: Code) -> bool:
    assert function.owner is not None
    return code.project.is_a(function.owner, "Dataset") and not is_evaluation(function.owner.name)


def _fill(node: ast.AST) -> ast.expr | None:
    """The length up to which an expression fills."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for one, other in ((node.left, node.right), (node.right, node.left)):
            if isinstance(one, ast.List) and len(one.elts) == 1:
                return _lacking(other)
    if isinstance(node, ast.Call) and called_name(node) == "pad" and len(node.args) >= 2:
        found = (_lacking(part) for part in ast.walk(node.args[1]))
        return next((length for length in found if length is not None), None)
    return None


def _lacking(node: ast.AST) -> ast.expr | None:
    """`length` of `length - len(x)`, `length - x.shape[0]`, `length - x.size(0)`."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub):
        return None
    there = ast.unparse(node.right)
    return node.left if re.search(r"\blen\(|\.shape\[|\.size\(|length", there) else None


def _is_fixed(length: ast.expr, function: Function) -> bool:
    """A setting: of the dataset, of the module; not the longest of a batch."""
    name = dotted(length)
    if not name or not _LENGTH.search(name) or name in function.bindings:
        return False
    plain = function.definition
    return "." in name or name.isupper() or (plain is not None and name in parameters(plain))

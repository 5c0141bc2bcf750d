"""Where the making of a sample turns the bytes of a picture into floats."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from flatout.source.module import Function, own_nodes
from flatout.source.nodes import called_name, dotted, root_name

_READERS = {
    "imread",
    "imdecode",
    "read_image",
    "decode_image",
    "decode_jpeg",
    "decode_png",
    "default_loader",
    "pil_loader",
}
_FLOATS = re.compile(r"float(16|32|64)?$|double$|half$")
# Values for a whole channel, not the picture.
_CONSTANTS = re.compile(r"mean|std|colou?r|palette|alpha|gamma|fill|value|thresh|scale|factor|noise|sigma", re.I)
_DEEPEST = 4


def widened_in(function: Function) -> Iterator[ast.expr]:
    """Divisions by 255, and conversions to floats of what was read from a picture's file, in the order of the text."""
    for node in own_nodes(function):
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div) and _is_255(_divisor(node)):
            of = node.left if isinstance(node, ast.BinOp) else node.target
            if _may_be_a_picture(of):
                yield node if isinstance(node, ast.BinOp) else node.target
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("div", "div_", "true_divide") and node.args and _is_255(node.args[0]):
                if _may_be_a_picture(node.func.value):
                    yield node
            elif _makes_floats(node) and _is_read(node.func.value, function, 0):
                yield node


def _divisor(node: ast.BinOp | ast.AugAssign) -> ast.expr:
    return node.right if isinstance(node, ast.BinOp) else node.value


def _is_255(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 255


def _may_be_a_picture(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant | ast.List | ast.Tuple):
        return False
    names = [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]
    names += [one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)]
    return not any(_CONSTANTS.search(name) for name in names)


def _makes_floats(call: ast.Call) -> bool:
    assert isinstance(call.func, ast.Attribute)
    if call.func.attr == "float" and not call.args:
        return True
    if call.func.attr not in ("astype", "to", "type") or not call.args:
        return False
    given = call.args[0]
    text = str(given.value) if isinstance(given, ast.Constant) else dotted(given)
    return bool(_FLOATS.search(text))


def _is_read(node: ast.expr, function: Function, depth: int) -> bool:
    """Does it come, through this function alone, from a picture's file?"""
    if depth > _DEEPEST:
        return False
    for one in ast.walk(node):
        if isinstance(one, ast.Call) and (called_name(one) in _READERS or dotted(one.func) == "Image.open"):
            return True
    while (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and root_name(node.func) in ("np", "torch")
    ):
        if not node.args:
            return False
        node = node.args[0]
    name = root_name(node)
    return bool(name) and any(_is_read(one, function, depth + 1) for one in function.bindings.get(name, ()))

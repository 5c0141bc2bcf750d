"""The place of a value in a Python file that assigns: `model = dict(depths=[2, 2])` or `cfg.MODEL.DEPTHS = [2, 2]`."""

from __future__ import annotations

import ast

from flatout.experiment.tuning.configs.places import Key, NotReadable, NotThere, Place

_Members = dict[str, ast.expr]


def find(text: str, key: Key) -> Place:
    tree = parsed(text)
    names: _Members = {}
    # The last assignment is the one that counts.
    for statement in ast.walk(tree):
        for target, value in _assigned(statement):
            names[target] = value
    # `cfg.MODEL.DEPTHS = …` is found whole, with or without the name it hangs on.
    whole = ".".join(key)
    for name, value in names.items():
        if name == whole or name.partition(".")[2] == whole:
            return _place(text, value)
    members, line = names, 1
    for depth, name in enumerate(key):
        if name not in members:
            raise NotThere(depth, line, members)
        node = members[name]
        members, line = _members(node), node.lineno
    return _place(text, node)


def written(value: str) -> str:
    """As a literal, where the user's text is not one already."""
    try:
        ast.literal_eval(value)
        return value
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return repr(value)


def is_right(before: str, after: str, key: Key, value: str) -> bool:
    place = find(after, key)
    return after[place.start : place.end] == value and _without(before, key) == _without(after, key)


def parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise NotReadable(f"line {getattr(error, 'lineno', 1)} is no Python ({error})") from error


def _without(text: str, key: Key) -> str:
    """What it says besides the value at the key."""
    place = find(text, key)
    return ast.dump(parsed(f"{text[: place.start]}None{text[place.end :]}"))


def _assigned(statement: ast.AST) -> list[tuple[str, ast.expr]]:
    if isinstance(statement, ast.Assign):
        return [(ast.unparse(target), statement.value) for target in statement.targets]
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        return [(ast.unparse(statement.target), statement.value)]
    return []


def _members(node: ast.expr) -> _Members:
    if isinstance(node, ast.Call):
        return {one.arg: one.value for one in node.keywords if one.arg is not None}
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}
    return {}


def _place(text: str, node: ast.expr) -> Place:
    lines = text.splitlines(keepends=True)

    def offset(line: int, column: int) -> int:
        # Python counts columns in bytes.
        return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())

    assert node.end_lineno is not None and node.end_col_offset is not None
    return Place(offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset))

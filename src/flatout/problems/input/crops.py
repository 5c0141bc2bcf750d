"""Crops in the user's source, and the lines that make what is then cropped.

Read from the text alone: which statements lead to the value that a crop is taken of, and which of the project's own
functions they call. Statements that need the whole (a decoder, a mean over all) are left out.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from flatout.records.report import Location

Place = tuple[str, int]
Function = ast.FunctionDef | ast.AsyncFunctionDef

# Crops by their name. `RandomResizedCrop` is none of them: it cuts before it resizes.
_CROPS = {"crop", "random_crop", "center_crop", "centre_crop", "randomcrop", "centercrop", "randomcrop3d", "crop_image"}
# What needs, or reads, the whole whatever is then cropped: decoders of compressed formats, and sums over everything.
_WHOLE = {
    "open", "imread", "imdecode", "decode_jpeg", "decode_image", "decode_png", "read_image", "read_video", "decode",
    "decompress", "loads", "unpickle", "get_frames", "get_batch", "convert", "pil_to_tensor", "to_tensor",
    "mean", "std", "var", "min", "max", "median", "percentile", "quantile", "sum", "norm", "histogram", "equalize_hist",
    "equalizeHist", "equalize", "autocontrast", "cumsum", "sort", "argsort", "unique", "fft", "fft2", "fftn", "rfft",
    "rfft2", "rfftn", "stft", "istft", "ifft", "irfft", "irfft2", "pad", "read", "read_bytes", "read_text",
    "load_image",
}  # fmt: skip
# These read the whole of a compressed file, and only the part that is asked for of a raw one.
_LOADS = {"load"}
_RAW_LOADERS = {"np", "numpy"}
_DEEPEST = 6


@dataclass(frozen=True, slots=True)
class Cropped:
    """A crop, how much it keeps of what was made (None: the text does not say), and the lines that made that."""

    location: Location
    kept: float | None
    making: frozenset[Place]


def find_crops(files: Mapping[str, str]) -> tuple[Cropped, ...]:
    """Every crop of a value that the same function made before."""
    return _find_crops(tuple(sorted(files.items())))


@lru_cache(maxsize=16)
def _find_crops(files: tuple[tuple[str, str], ...]) -> tuple[Cropped, ...]:
    project = _Project(dict(files))
    found = [crop for file, function in project.functions() for crop in _in_function(project, file, function)]
    found += [crop for file, tree in project.trees.items() for crop in _in_pipelines(project, file, tree)]
    return tuple(crop for crop in found if crop.making)


class _Project:
    """The files as trees, and their functions by name."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.trees: dict[str, ast.Module] = {}
        for file, text in files.items():
            try:
                self.trees[file] = ast.parse(text)
            except (SyntaxError, ValueError):
                continue
        self.by_name: dict[str, list[tuple[str, Function]]] = {}
        self.methods: dict[str, dict[str, tuple[str, Function]]] = {}
        for file, tree in self.trees.items():
            for node in ast.walk(tree):
                if isinstance(node, Function):
                    self.by_name.setdefault(node.name, []).append((file, node))
                elif isinstance(node, ast.ClassDef):
                    own = {
                        statement.name: (file, statement) for statement in node.body if isinstance(statement, Function)
                    }
                    self.methods.setdefault(node.name, {}).update(own)

    def functions(self) -> Iterator[tuple[str, Function]]:
        for named in self.by_name.values():
            yield from named

    def called_by(self, nodes: Iterable[ast.AST], but: set[str]) -> list[tuple[str, Function]]:
        """Functions of the project that these statements call, and those that these call in turn."""
        found: dict[int, tuple[str, Function]] = {}
        around = [(node, 0) for node in nodes]
        while around:
            node, depth = around.pop()
            for name in _called_names(node) - but:
                for file, function in self.by_name.get(name, ()):
                    if id(function) not in found and depth < _DEEPEST:
                        found[id(function)] = file, function
                        around.append((function, depth + 1))
        return list(found.values())

    def cropper(self, name: str) -> Function | None:
        """A function of the project that does nothing much but cut its argument."""
        for _, function in self.by_name.get(name, ()):
            given = {arg.arg for arg in function.args.args}
            if any(_base_names(cut) & given for cut in _cuts(function)) and len(function.body) <= 5:
                return function
        return None


def _in_function(project: _Project, file: str, function: Function) -> Iterator[Cropped]:
    statements = list(_statements(function))
    for at, (statement, parts) in enumerate(statements):
        for node in _inside(parts):
            names, sizes = _cropped_names(project, node)
            if not names:
                continue
            before = _leading_to(statements[:at], _through_loops(parts, names))
            if not before:
                continue
            making = _making(project, file, before, _undecoded_images(function))
            kept = _kept_share(project, file, function, sizes)
            yield Cropped(Location(file, getattr(node, "lineno", statement.lineno)), kept, frozenset(making))


def _through_loops(parts: list[ast.AST], names: set[str]) -> set[str]:
    """With what comprehensions of the statement go over, where a name is one of their variables."""
    found = set(names)
    for _ in range(3):
        for node in _inside(parts):
            if isinstance(node, ast.comprehension) and {inner.id for inner in _names(node.target)} & found:
                found |= {inner.id for inner in _names(node.iter)}
    return found


def _cropped_names(project: _Project, node: ast.AST) -> tuple[set[str], list[ast.Slice]]:
    """The variables that a crop is taken of; empty where the node is no crop."""
    if isinstance(node, ast.Subscript):
        sizes = _moving_slices(node)
        return (_base_names(node), sizes) if sizes else (set(), [])
    if not isinstance(node, ast.Call):
        return set(), []
    name = _name_of(node)
    if name.lower() in _CROPS:
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        base = [owner] if isinstance(owner, ast.Name) and not node.args else [owner, *node.args[:1]]
        return {node.id for part in base if part is not None for node in _names(part)}, []
    cutter = project.cropper(name)
    if cutter is None:
        return set(), []
    cut = next(iter(_cuts(cutter)))
    return {inner.id for part in node.args for inner in _names(part)}, _moving_slices(cut)


def _cuts(function: Function) -> list[ast.Subscript]:
    return [node for node in ast.walk(function) if isinstance(node, ast.Subscript) and _moving_slices(node)]


def _moving_slices(node: ast.Subscript) -> list[ast.Slice]:
    """`x[top : top + size, left : left + size]`: slices of a size, at a place that was computed, along several axes.

    Along one axis it may be a window of a text or a list, which cannot be cut before it is made.
    """
    if not isinstance(node.ctx, ast.Load) or not isinstance(node.slice, ast.Tuple):
        return []
    slices = [part for part in node.slice.elts if isinstance(part, ast.Slice) and _size_of(part) is not None]
    return slices if len(slices) > 1 else []


def _size_of(part: ast.Slice) -> ast.expr | None:
    low, high = part.lower, part.upper
    if low is None or isinstance(low, ast.Constant):
        return None
    if not isinstance(high, ast.BinOp) or not isinstance(high.op, ast.Add):
        return None
    if ast.dump(high.left) == ast.dump(low):
        return high.right
    return high.left if ast.dump(high.right) == ast.dump(low) else None


def _statements(function: Function) -> Iterator[tuple[ast.stmt, list[ast.AST]]]:
    """All simple statements in order, and the heads of compound ones, with what belongs to the statement itself."""

    def walk(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, list[ast.AST]]]:
        for statement in body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
            inner = {id(statement) for block in blocks for statement in block}
            handlers = getattr(statement, "handlers", [])
            inner |= {id(statement) for statement in handlers}
            yield statement, [node for node in ast.iter_child_nodes(statement) if id(node) not in inner]
            for block in blocks:
                yield from walk(block)
            for handler in handlers:
                yield from walk(handler.body)

    return walk(function.body)


def _inside(parts: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for part in parts:
        yield from ast.walk(part)


def _leading_to(
    statements: list[tuple[ast.stmt, list[ast.AST]]], names: set[str]
) -> list[tuple[ast.stmt, list[ast.AST]]]:
    """Those that the named values come from, by the names they assign, last first."""
    wanted, found = set(names) - {"self", "cls"}, []
    for statement, parts in reversed(statements):
        made = {node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name) and not _reads(node)}
        if made & wanted:
            found.append((statement, parts))
            wanted |= {
                node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name) and _reads(node)
            }
            wanted -= {"self", "cls"}
    return found


def _making(
    project: _Project, file: str, statements: list[tuple[ast.stmt, list[ast.AST]]], lazy: set[str]
) -> set[Place]:
    places: set[Place] = set()
    for statement, parts in statements:
        if not _needs_whole(parts, lazy):
            places |= {(file, line) for line in _span(statement, parts)}
    nodes = [part for _, parts in statements for part in parts]
    for where, function in project.called_by(nodes, set()):
        own_lazy = _undecoded_images(function)
        for statement, parts in _statements(function):
            if not _needs_whole(parts, own_lazy):
                places |= {(where, line) for line in _span(statement, parts)}
    return places


def _needs_whole(parts: list[ast.AST], lazy: set[str]) -> bool:
    for node in _inside(parts):
        if isinstance(node, ast.Call):
            name = _name_of(node)
            owner = node.func.value if isinstance(node.func, ast.Attribute) else None
            raw = isinstance(owner, ast.Name) and owner.id in _RAW_LOADERS
            if name in _WHOLE or (name in _LOADS and not (raw and ".npz" not in ast.unparse(node))):
                return True
        elif isinstance(node, ast.Name) and _reads(node) and node.id in lazy:
            return True  # an image file is decoded when its pixels are first asked for
    return False


def _undecoded_images(function: Function) -> set[str]:
    """Names of what may be an image that is not decoded yet: opened here, or handed in."""
    names = {arg.arg for arg in function.args.args if any(word in arg.arg.lower() for word in ("img", "image", "pic"))}
    for statement, parts in _statements(function):
        opened = any(isinstance(node, ast.Call) and _name_of(node) == "open" for node in _inside(parts))
        if isinstance(statement, ast.With | ast.Assign) and opened:
            stored = (node for part in parts for node in ast.walk(part) if isinstance(node, ast.Name))
            names |= {node.id for node in stored if not _reads(node)}
    return names


def _in_pipelines(project: _Project, file: str, tree: ast.Module) -> Iterator[Cropped]:
    """`Compose([A(), B(), RandomCrop(n), …])`: what the project's own A and B do is done to all of it."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.List | ast.Tuple):
            continue
        names = [_name_of(element) if isinstance(element, ast.Call) else "" for element in node.elts]
        at = next((i for i, name in enumerate(names) if name and _is_crop_class(project, name)), None)
        if not at:
            continue
        making: set[Place] = set()
        for name in names[:at]:
            for where, function in _calls_of(project, name):
                making |= _making(project, where, list(_statements(function)), set())
        yield Cropped(Location(file, node.elts[at].lineno), None, frozenset(making))


def _is_crop_class(project: _Project, name: str) -> bool:
    if name.lower() in _CROPS:
        return True
    return any(_cuts(function) for _, function in _calls_of(project, name))


def _calls_of(project: _Project, name: str) -> list[tuple[str, Function]]:
    methods = project.methods.get(name, {})
    return [methods[called] for called in ("__call__", "forward") if called in methods]


def _kept_share(project: _Project, file: str, function: Function, slices: list[ast.Slice]) -> float | None:
    """Product over the axes of size / full, where the text has both as plain numbers."""
    shares = []
    for part in slices:
        size = _size_of(part)
        full = _full_of(project, file, function, size) if size is not None else None
        number = _number(project, file, function, size) if size is not None else None
        if not number or not full or number > full:
            return None
        shares.append(number / full)
    return math.prod(shares) if shares else None


def _full_of(project: _Project, file: str, function: Function, size: ast.expr) -> float | None:
    """The X of an offset drawn from `X - size`."""
    for node in ast.walk(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and ast.dump(node.right) == ast.dump(size):
            number = _number(project, file, function, node.left)
            if number:
                return number
    return None


def _number(project: _Project, file: str, function: Function, node: ast.expr) -> float | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    if isinstance(node, ast.Name):
        given = _default(function, node.id)
        values = [value for name, value in _constants(project.trees[file]) if name == node.id]
        chosen = given if given is not None else values[0] if len(values) == 1 else None
        return float(chosen.value) if isinstance(chosen, ast.Constant) and isinstance(chosen.value, int) else None
    return None


def _constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """What is assigned at the top of a file: `A = 1`, `A, B = 1, 2`."""
    for statement in tree.body:
        if not isinstance(statement, ast.Assign):
            continue
        for target in statement.targets:
            pairs = [(target, statement.value)]
            if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
                pairs = list(zip(target.elts, statement.value.elts, strict=False))
            yield from ((target.id, value) for target, value in pairs if isinstance(target, ast.Name))


def _default(function: Function, name: str) -> ast.expr | None:
    plain = function.args.args[len(function.args.args) - len(function.args.defaults) :]
    pairs = [*zip(plain, function.args.defaults, strict=True)]
    return next((value for arg, value in pairs if arg.arg == name), None)


def _called_names(node: ast.AST) -> set[str]:
    return {_name_of(inner) for inner in ast.walk(node) if isinstance(inner, ast.Call)}


def _name_of(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _names(node: ast.AST) -> Iterator[ast.Name]:
    return (inner for inner in ast.walk(node) if isinstance(inner, ast.Name))


def _base_names(node: ast.Subscript) -> set[str]:
    return {inner.id for inner in _names(node.value)}


def _reads(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Load)


def _span(statement: ast.stmt, parts: list[ast.AST]) -> range:
    """Its lines; of a compound statement those of its head."""
    if not hasattr(statement, "body"):
        return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    ends = [getattr(part, "end_lineno", None) or statement.lineno for part in parts]
    return range(statement.lineno, max(ends, default=statement.lineno) + 1)

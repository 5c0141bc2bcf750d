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
from flatout.source.syntax.module import Function, Module, parse_text
from flatout.source.syntax.nodes import DEFINITIONS, called_name, defaults, dotted_name, names_in

Place = tuple[str, int]
# A statement, and what belongs to itself: without the blocks in it.
Statement = tuple[ast.stmt, list[ast.AST]]

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
_ARRAY_READERS = {f"{module}.{name}" for module in _RAW_LOADERS for name in ("load", "fromfile")}
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
    project = _Project([parse_text(text, file) for file, text in files])
    found = [
        crop for named in project.by_name.values() for function in named for crop in _in_function(project, function)
    ]
    found += [crop for module in project.modules for crop in _in_pipelines(project, module)]
    return tuple(crop for crop in found if crop.making)


class _Project:
    """The files, and their functions by name."""

    def __init__(self, modules: list[Module]) -> None:
        self.modules = modules
        self.by_name: dict[str, list[Function]] = {}
        self.methods: dict[str, dict[str, Function]] = {}
        for module in modules:
            for function in module.functions[1:]:
                self.by_name.setdefault(function.name, []).append(function)
            for cls in module.classes.values():
                self.methods.setdefault(cls.name, {}).update(cls.methods)

    def called_by(self, nodes: Iterable[ast.AST]) -> list[Function]:
        """Functions of the project that these statements call, and those that these call in turn."""
        found: dict[int, Function] = {}
        around = [(node, 0) for node in nodes]
        while around:
            node, depth = around.pop()
            for name in {called_name(inner) for inner in ast.walk(node) if isinstance(inner, ast.Call)}:
                for function in self.by_name.get(name, ()):
                    if id(function) not in found and depth < _DEEPEST:
                        found[id(function)] = function
                        around.append((function.node, depth + 1))
        return list(found.values())

    def cut_by(self, name: str) -> ast.Subscript | None:
        """The cut of a function of the project that does nothing much but cut its argument."""
        for function in self.by_name.get(name, ()):
            cuts = _cuts(function)
            if any(names_in(cut.value) & set(function.parameters) for cut in cuts) and len(function.node.body) <= 5:
                return cuts[0]
        return None

    def transforms(self, name: str) -> list[Function]:
        """What a transform of this name does to a sample."""
        methods = self.methods.get(name, {})
        return [methods[called] for called in ("__call__", "forward") if called in methods]


def _in_function(project: _Project, function: Function) -> Iterator[Cropped]:
    statements = list(_statements(function.node.body))
    for at, (statement, parts) in enumerate(statements):
        for node in _inside(parts):
            names, sizes = _cropped_names(project, node)
            windows = names or _window_names(node)
            before = _leading_to(statements[:at], _through_loops(parts, windows)) if windows else []
            if not before or not (names or any(_reads_file(parts) for _, parts in before)):
                continue
            making = _making(project, function, before, _undecoded_images(function))
            place = Location(function.module.shown, getattr(node, "lineno", statement.lineno))
            yield Cropped(place, _kept_share(function, sizes), frozenset(making))


def _through_loops(parts: list[ast.AST], names: set[str]) -> set[str]:
    """With what comprehensions of the statement go over, where a name is one of their variables."""
    found = set(names)
    for _ in range(3):
        for node in _inside(parts):
            if isinstance(node, ast.comprehension) and names_in(node.target) & found:
                found |= names_in(node.iter)
    return found


def _cropped_names(project: _Project, node: ast.AST) -> tuple[set[str], list[ast.Slice]]:
    """The variables that a crop is taken of; empty where the node is no crop."""
    if isinstance(node, ast.Subscript) and (sizes := _moving_slices(node)):
        return names_in(node.value), sizes
    if not isinstance(node, ast.Call):
        return set(), []
    if called_name(node).lower() in _CROPS:
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        base = [owner] if isinstance(owner, ast.Name) and not node.args else [owner, *node.args[:1]]
        return {name for part in base if part is not None for name in names_in(part)}, []
    cut = project.cut_by(called_name(node))
    return (
        (set(), []) if cut is None else ({name for part in node.args for name in names_in(part)}, _moving_slices(cut))
    )


def _window_names(node: ast.AST) -> set[str]:
    """The same for `x[start : start + size]`: a window along one axis, of a text or a list as well as of an array."""
    is_window = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and isinstance(node.slice, ast.Slice)
    if not is_window:
        return set()
    assert isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)
    return names_in(node.value) if _size_of(node.slice) is not None else set()


def _reads_file(parts: Iterable[ast.AST]) -> bool:
    """Is an array in a file read here, of which a part could be read as well?"""
    calls = (node for node in _inside(parts) if isinstance(node, ast.Call))
    return any(dotted_name(call.func) in _ARRAY_READERS for call in calls)


def _cuts(function: Function) -> list[ast.Subscript]:
    return [node for node in ast.walk(function.node) if isinstance(node, ast.Subscript) and _moving_slices(node)]


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


def _statements(body: Iterable[ast.stmt]) -> Iterator[Statement]:
    """All simple statements in order, and the heads of compound ones."""
    for statement in body:
        if isinstance(statement, DEFINITIONS):
            continue
        blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
        handlers = getattr(statement, "handlers", [])
        inner = {id(part) for block in (*blocks, handlers) for part in block}
        yield statement, [node for node in ast.iter_child_nodes(statement) if id(node) not in inner]
        for block in (*blocks, *(handler.body for handler in handlers)):
            yield from _statements(block)


def _inside(parts: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for part in parts:
        yield from ast.walk(part)


def _names(parts: Iterable[ast.AST], read: bool) -> set[str]:
    """Names that are read, or those that are assigned."""
    names = (node for node in _inside(parts) if isinstance(node, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Load) is read}


def _leading_to(statements: list[Statement], names: set[str]) -> list[Statement]:
    """Those that the named values come from, by the names they assign, last first."""
    wanted, found = names - {"self", "cls"}, []
    for statement, parts in reversed(statements):
        if _names(parts, read=False) & wanted:
            found.append((statement, parts))
            wanted = (wanted | _names(parts, read=True)) - {"self", "cls"}
    return found


def _making(project: _Project, function: Function, statements: list[Statement], lazy: set[str]) -> set[Place]:
    """Lines of these statements, and of what they call, that need not have worked on the whole."""
    called = project.called_by(part for _, parts in statements for part in parts)
    all_of_it = [(function, statements, lazy)]
    all_of_it += [(inner, list(_statements(inner.node.body)), _undecoded_images(inner)) for inner in called]
    return {
        (where.module.shown, line)
        for where, made, undecoded in all_of_it
        for statement, parts in made
        if not _needs_whole(parts, undecoded)
        for line in _span(statement, parts)
    }


def _needs_whole(parts: list[ast.AST], lazy: set[str]) -> bool:
    for node in _inside(parts):
        if isinstance(node, ast.Call):
            name = called_name(node)
            owner = node.func.value if isinstance(node.func, ast.Attribute) else None
            raw = isinstance(owner, ast.Name) and owner.id in _RAW_LOADERS
            if name in _WHOLE or (name in _LOADS and not (raw and ".npz" not in ast.unparse(node))):
                return True
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in lazy:
            return True  # an image file is decoded when its pixels are first asked for
    return False


def _undecoded_images(function: Function) -> set[str]:
    """Names of what may be an image that is not decoded yet: opened here, or handed in."""
    names = {name for name in function.parameters if any(word in name.lower() for word in ("img", "image", "pic"))}
    for statement, parts in _statements(function.node.body):
        opened = any(isinstance(node, ast.Call) and called_name(node) == "open" for node in _inside(parts))
        if isinstance(statement, ast.With | ast.Assign) and opened:
            names |= _names(parts, read=False)
    return names


def _in_pipelines(project: _Project, module: Module) -> Iterator[Cropped]:
    """`Compose([A(), B(), RandomCrop(n), …])`: what the project's own A and B do is done to all of it."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.List | ast.Tuple):
            continue
        names = [called_name(element) if isinstance(element, ast.Call) else "" for element in node.elts]
        at = next((i for i, name in enumerate(names) if name and _is_crop_class(project, name)), None)
        if at:
            before = [function for name in names[:at] for function in project.transforms(name)]
            making = {
                place
                for function in before
                for place in _making(project, function, list(_statements(function.node.body)), set())
            }
            yield Cropped(Location(module.shown, node.elts[at].lineno), None, frozenset(making))


def _is_crop_class(project: _Project, name: str) -> bool:
    return name.lower() in _CROPS or any(_cuts(function) for function in project.transforms(name))


def _kept_share(function: Function, slices: list[ast.Slice]) -> float | None:
    """Product over the axes of size / full, where the text has both as plain numbers."""
    shares = []
    for size in map(_size_of, slices):
        full = _full_of(function, size) if size is not None else None
        number = _number(function, size) if size is not None else None
        if not number or not full or number > full:
            return None
        shares.append(number / full)
    return math.prod(shares) if shares else None


def _full_of(function: Function, size: ast.expr) -> float | None:
    """The X of an offset drawn from `X - size`."""
    for node in ast.walk(function.node):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and ast.dump(node.right) == ast.dump(size):
            number = _number(function, node.left)
            if number:
                return number
    return None


def _number(function: Function, node: ast.expr) -> float | None:
    """A number, or the name of one: a parameter with a default, or what is assigned at the top of the file."""
    if isinstance(node, ast.Name):
        given = defaults(function.definition).get(node.id) if function.definition is not None else None
        values = function.module.body.bindings.get(node.id, [])
        chosen = given if given is not None else values[0] if len(values) == 1 else None
        return float(chosen.value) if isinstance(chosen, ast.Constant) and isinstance(chosen.value, int) else None
    return float(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, int | float) else None


def _span(statement: ast.stmt, parts: list[ast.AST]) -> range:
    """Its lines; of a compound statement those of its head."""
    if not hasattr(statement, "body"):
        return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    ends = [getattr(part, "end_lineno", None) or statement.lineno for part in parts]
    return range(statement.lineno, max(ends, default=statement.lineno) + 1)

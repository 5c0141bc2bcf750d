"""Which function of the user's is worth keeping, by a run's findings: where it is, and what it is called there.

Works on the source as it lies here, in flatout's own process; nothing of the user's is imported.
"""

from __future__ import annotations

import ast
import builtins
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ...records.message import Message, message
from ..answers import Answer, Report, no, yes
from ..user_code import parse_file
from .known_names import BUILTINS, LIBRARIES, LIBRARY
from .purity import Body, Impure, NamePath, fault_of, reads_of

if TYPE_CHECKING:
    from ...records.report import Finding


# A loop over elements in Python; constants that are built in every step.
_CODES = ("HO402", "HO408")
_NOTHING_FOUND = message("memo.nothing_found")


def propose_functions(report: Report, remedy: str) -> Answer:
    """Yes with `module:function` of all findings where one function can be kept; else why the first cannot.

    What the run has kept already stays named.
    """
    kept = [item for item in report.remedies if item.id == remedy and item.state == "applied"]
    names = [name for entry in kept for name in str(entry.value).split(",")]
    found: list[Message | str] = []
    refusals: list[Message] = []
    for finding in report.findings:
        if finding.code in _CODES and finding.location is not None:
            try:
                names.append(_function_of(finding, report))
                found.append(finding.cause)
            except Impure as reason:
                refusals.append(reason.why)
    if found:
        return yes(",".join(dict.fromkeys(names)), message("memo.worth", cause=found[0]))
    return no(refusals[0] if refusals else _NOTHING_FOUND)


def _function_of(finding: Finding, report: Report) -> str:
    """The function around the place, or else the one in which most of the time goes. Raises Impure."""
    assert finding.location is not None
    tree = parse_file(finding.location.file)
    if tree is None:
        raise Impure(message("memo.file_unreadable", file=os.path.basename(finding.location.file)))
    lines = [finding.location.line]
    first = str(finding.evidence.get("loop_lines", "")).partition("-")[0]
    if first.isdigit():
        lines.insert(0, int(first))
    refusal: Impure | None = None
    for line in lines:
        try:
            name = _pure_function_at(tree, line)
            return f"{module_of(finding.location.file, report.run.argv)}:{name}"
        except Impure as reason:
            refusal = refusal or reason
    raise refusal or Impure(_NOTHING_FOUND)


def _pure_function_at(tree: ast.Module, line: int) -> str:
    """Its qualified name. Raises Impure."""
    for owner in [None, *(node for node in tree.body if isinstance(node, ast.ClassDef))]:
        for node in (owner or tree).body:
            if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0):
                if not _returns(node):
                    raise Impure(message("memo.returns_nothing", function=node.name))
                names = WrittenNames(tree, owner)
                try:
                    reads_of(Body(node, names, takes_self=owner is not None))
                except Impure as reason:
                    raise Impure(message("memo.cannot_keep", function=node.name, why=reason.why)) from None
                return f"{owner.name}.{node.name}" if owner is not None else node.name
    raise Impure(message("memo.no_function_at", line=line))


def _returns(node: ast.FunctionDef) -> bool:
    return any(isinstance(item, ast.Return) and item.value is not None for item in ast.walk(node))


def module_of(file: str, argv: tuple[str, ...]) -> str:
    path = Path(file)
    if any(word.endswith(".py") and _is_same(path, word) for word in argv):
        return "__main__"
    folder, names = path.parent, [path.stem] if path.stem != "__init__" else []
    scripts = [Path(word).parent for word in argv if word.endswith(".py") and os.path.isabs(word)]
    # Without an __init__.py a folder is a package too, if it lies below the script's.
    while (folder / "__init__.py").is_file() or any(script in folder.parents for script in scripts):
        names.insert(0, folder.name)
        folder = folder.parent
    name = ".".join(names)
    return "__main__" if _is_run_as_module(name, argv) else name


def _is_same(path: Path, word: str) -> bool:
    """The command may be written from another folder: then its end decides."""
    script = Path(word)
    return path == script if script.is_absolute() else path.parts[-len(script.parts) :] == script.parts


def _is_run_as_module(name: str, argv: tuple[str, ...]) -> bool:
    places = [place for place, word in enumerate(argv) if word == "-m" and place + 1 < len(argv)]
    return any(argv[place + 1] in (name, name.removesuffix(".__main__")) for place in places)


# What the names of a function stand for by its source file, where nothing of it is loaded. What comes from another
# file of the user's gets the benefit of the doubt: the process that has it loaded decides.


class WrittenNames:
    """The imports and functions of one file, and the class around a function."""

    def __init__(self, tree: ast.Module, owner: ast.ClassDef | None) -> None:
        self._tree = tree
        self._owner = owner
        self._imported: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for item in node.names:
                    name = item.name if item.asname else item.name.partition(".")[0]
                    self._imported[item.asname or name] = name
            elif isinstance(node, ast.ImportFrom):
                for item in node.names:
                    self._imported[item.asname or item.name] = f"{'.' * node.level}{node.module or ''}.{item.name}"

    def origin(self, path: NamePath) -> str | None:
        if path[0] in self._imported:
            name = ".".join((self._imported[path[0]], *path[1:]))
            module, _, last = name.rpartition(".")
            return name if last in LIBRARY.get(module, ()) else None
        is_own = len(path) > 1 or self._function(path[0]) is not None
        return None if is_own or not hasattr(builtins, path[0]) else f"builtins.{path[0]}"

    def called(self, path: NamePath, arguments: int) -> Body | None:
        origin = self.origin(path)
        if origin is not None and origin.startswith("builtins."):
            kind = getattr(builtins, path[0])
            if path[0] not in BUILTINS and not (isinstance(kind, type) and issubclass(kind, Exception)):
                raise Impure(message("memo.calls", function=path[0]))
            return None
        node = self._function(path[0]) if len(path) == 1 else None
        if node is not None:
            return Body(node, WrittenNames(self._tree, None), takes_self=False)
        home = self._imported.get(path[0])
        if origin is None and (home is None or home.partition(".")[0] in LIBRARIES):
            raise Impure(message("memo.calls_impure", function=".".join(path), why=fault_of(path[-1])))
        return None

    def method(self, name: str) -> Body:
        for node in self._owner.body if self._owner is not None else ():
            if isinstance(node, ast.FunctionDef) and node.name == name:
                words = [ast.unparse(decorator) for decorator in node.decorator_list]
                return Body(node, self, takes_self="staticmethod" not in words)
        raise Impure(message("memo.no_method", method=name))

    def _function(self, name: str) -> ast.FunctionDef | None:
        found = (node for node in self._tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
        return next(found, None)

"""What the names of a function stand for by the file it is written in, where nothing of it is loaded.

What comes from another file of the user's is given the benefit of the doubt: the process that has it loaded decides.
"""

from __future__ import annotations

import ast
import builtins

from .known_names import BUILTINS, LIBRARIES, LIBRARY
from .purity import Body, Impure, Path, fault_of


class Written:
    """The imports and functions of one file, and the class around a function."""

    def __init__(self, tree: ast.Module, owner: ast.ClassDef | None) -> None:
        self._tree = tree
        self._owner = owner
        self._imported: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for one in node.names:
                    name = one.name if one.asname else one.name.partition(".")[0]
                    self._imported[one.asname or name] = name
            elif isinstance(node, ast.ImportFrom):
                for one in node.names:
                    self._imported[one.asname or one.name] = f"{'.' * node.level}{node.module or ''}.{one.name}"

    def origin(self, path: Path) -> str | None:
        if path[0] in self._imported:
            name = ".".join((self._imported[path[0]], *path[1:]))
            module, _, last = name.rpartition(".")
            return name if last in LIBRARY.get(module, ()) else None
        is_own = len(path) > 1 or self._function(path[0]) is not None
        return None if is_own or not hasattr(builtins, path[0]) else f"builtins.{path[0]}"

    def called(self, path: Path, arguments: int) -> Body | None:
        origin = self.origin(path)
        if origin is not None and origin.startswith("builtins."):
            kind = getattr(builtins, path[0])
            if path[0] not in BUILTINS and not (isinstance(kind, type) and issubclass(kind, Exception)):
                raise Impure(f"it calls {path[0]}")
            return None
        node = self._function(path[0]) if len(path) == 1 else None
        if node is not None:
            return Body(node, Written(self._tree, None), takes_self=False)
        home = self._imported.get(path[0])
        if origin is None and (home is None or home.partition(".")[0] in LIBRARIES):
            raise Impure(f"it calls {'.'.join(path)}, which {fault_of(path[-1])}")
        return None

    def method(self, name: str) -> Body:
        for node in self._owner.body if self._owner is not None else ():
            if isinstance(node, ast.FunctionDef) and node.name == name:
                words = [ast.unparse(one) for one in node.decorator_list]
                return Body(node, self, takes_self="staticmethod" not in words)
        raise Impure(f"it calls self.{name}, which is no method of its class")

    def _function(self, name: str) -> ast.FunctionDef | None:
        found = (node for node in self._tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
        return next(found, None)

"""The kinds of tensors in every region of a training, handed from the loop down to what it calls."""

from __future__ import annotations

import ast
import re

from flatout.source.module import Class, Function
from flatout.source.nodes import is_hooked, parameters
from flatout.source.project import Project
from flatout.source.tensors import Kinds, Returns, Tensors, given_to
from flatout.source.training import Region

_ON_DEVICE = ("graph", "device")
# An object holds its model and much else besides; results are known by their names.
_RESULTS = re.compile(r"loss|logits?$|output|pred|score|prob|error|acc(uracy)?$", re.I)


class Following:
    """The kinds of every region of a training, handed from the loop down to what it calls."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._known: dict[int, Tensors] = {}
        self._returns: Returns = {}
        self._held: dict[int, Kinds] = {}

    def of(self, region: Region) -> Tensors:
        if id(region) not in self._known:
            given = dict(self._of_object(region.function))
            if region.hop is not None:
                given |= self._given(region)
            self._known[id(region)] = Tensors(self._project, region.function, given, self._returns)
        return self._known[id(region)]

    def _given(self, region: Region) -> Kinds:
        assert region.hop is not None
        if is_hooked(region.hop.call):
            plain = region.function.definition
            return dict.fromkeys(parameters(plain), "device") if plain is not None else {}  # it is given gradients
        return given_to(region.hop.call, region.function, self.of(region.hop.caller))

    def _of_object(self, function: Function) -> Kinds:
        """Attributes that other methods leave results in: `self.losses = losses`, to be shown by another."""
        owner = function.owner
        if owner is None or function.definition is None:
            return {}
        if id(owner) not in self._held:
            self._held[id(owner)] = {}  # while it is being looked at
            self._held[id(owner)] = self._left_by(owner)
        return self._held[id(owner)]

    def _left_by(self, owner: Class) -> Kinds:
        found: dict[str, set[str | None]] = {}
        for method in owner.methods.values():
            names = [name for name in method.bindings if name.startswith("self.") and _RESULTS.search(name)]
            # What is set up once is a part of the model, a setting, or empty.
            if method.name == "__init__" or not names:
                continue
            kinds = Tensors(self._project, method, {}, self._returns, 1)
            for name in names:
                values = [one for one in method.bindings[name] if not isinstance(one, ast.Constant)]
                found.setdefault(name, set()).update(kinds.of(one) for one in values)
        return {
            name: "graph" if "graph" in kinds else "device"
            for name, kinds in found.items()
            if kinds & set(_ON_DEVICE) and "host" not in kinds
        }

"""The kinds of tensors in every region of a training, handed from the loop down to what it calls."""

from __future__ import annotations

from flatout.source.project import Project
from flatout.source.tensors import Kinds, Returns, Tensors, given_to
from flatout.source.training import Region


class Following:
    """The kinds of every region of a training, handed from the loop down to what it calls."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._known: dict[int, Tensors] = {}
        self._returns: Returns = {}

    def of(self, region: Region) -> Tensors:
        if id(region) not in self._known:
            given: Kinds = {}
            if region.hop is not None:
                given = given_to(region.hop.call, region.function, self.of(region.hop.caller))
            self._known[id(region)] = Tensors(self._project, region.function, given, self._returns)
        return self._known[id(region)]

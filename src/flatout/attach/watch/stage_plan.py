"""Which parts of the trained model are its stages: disjoint submodules, a handful of them, named as the script does.

The model is found, not handed to us: the modules that are alive, and of these the outermost that hold a parameter of
an optimizer. Nothing here calls a method of the script's own classes, and modules are only held weakly.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from typing import Any

from ..recorder import fact

MOST_STAGES = 12
_FEW_STAGES = 6  # with fewer, containers are opened
_DEEPEST = 3
_DEEPEST_WITHOUT_FORWARD = 8  # what has no forward cannot be timed itself and is opened whatever its depth
_LARGE = 0.6  # of all parameters, or of the time
_MOST_ROOTS = 4
_MOST_MEMBERS = 128  # each is hooked in a sampled step
# Wrappers keep the model they wrap under these names, which say nothing to the reader.
_WRAPPED = ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


class Part:
    """One submodule at its place in the model."""

    def __init__(self, name: str, parent: str, module: Any, depth: int) -> None:
        self.name = name
        self.parent = parent
        self.module = weakref.ref(module)
        self.depth = depth
        self.parameters = count_parameters([module])


class Stage:
    """One line of the table: a part, or several neighbours."""

    def __init__(self, number: int, parts: list[Part]) -> None:
        self.number = number
        self.parts = parts
        first, last = parts[0].name, parts[-1].name
        self.name = first if len(parts) == 1 else f"{first}-{last.rpartition('.')[2]}"
        kinds = {type(module).__name__ for module in self.modules()}
        self.kind = kinds.pop() if len(kinds) == 1 else f"{len(parts)} modules"
        # Where the work is done, as far as parameters tell.
        self.device = next((parameter.device for parameter in _parameters(self.modules())), None)
        self.total_ms = 0.0
        self.recomputed = False

    def modules(self) -> list[Any]:
        return [module for module in (part.module() for part in self.parts) if module is not None]

    def add(self, forward_ms: float, backward_ms: float) -> None:
        self.total_ms += sum(ms for ms in (forward_ms, backward_ms) if ms == ms)

    def describe(self) -> dict[str, object]:
        parameters = sum(part.parameters for part in self.parts)
        return {"id": self.number, "name": self.name, "module": self.kind, "parameters": parameters}


class Plan:
    """The parts of the model that are timed now, and what was left out of it."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._containers = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)
        self._seen: set[int] = set()
        self._numbers = 0
        self.parts: list[Part] = []
        self.left_out: dict[str, dict[str, object]] = {}  # and why, as a fact
        self._total = 1
        self.stages: list[Stage] = []

    def make(self, roots: list[Any]) -> None:
        """Open the models as far as it takes for a handful of stages."""
        self._total = max(1, count_parameters(roots))
        for name, root in zip(_root_names(roots), roots, strict=True):
            # The name of the only model would stand before every stage.
            self._add("" if len(roots) == 1 and children_of(root) else name, "", root, 0)
        self._open_what_deserves_it()

    def refine(self) -> bool:
        """Open the stage that takes most of the time of all, if there is one and it has parts."""
        total_ms = sum(stage.total_ms for stage in self.stages)
        for stage in self.stages:
            if total_ms > 0 and stage.total_ms > _LARGE * total_ms and len(stage.parts) == 1:
                part = stage.parts[0]
                if part.depth < _DEEPEST and self._is_worth_opening(part):
                    self._open(part)
                    self._open_what_deserves_it()
                    return True
        return False

    def leave_out(self, stage: Stage, why: dict[str, object]) -> None:
        self.left_out[stage.name] = why
        self.stages = [other for other in self.stages if other is not stage]
        self.parts = [part for part in self.parts if part not in stage.parts]

    def _add(self, name: str, parent: str, module: Any, depth: int) -> None:
        if id(module) in self._seen:
            return  # shared: it has its place already
        self._seen.add(id(module))
        why = self._unfit(module)
        if why is not None:
            self.left_out[name or type(module).__name__] = why
        else:
            self.parts.append(Part(name, parent, module, depth))

    def _unfit(self, module: Any) -> dict[str, object] | None:
        if type(module).__name__ == "OptimizedModule" or vars(module).get("_compiled_call_impl") is not None:
            return fact("stages.compiled")
        if isinstance(module, self._torch.jit.ScriptModule):
            return fact("stages.torchscript")
        return None

    def _open_what_deserves_it(self) -> None:
        while (part := self._next_to_open()) is not None:
            self._open(part)
        self._number_stages()

    def _next_to_open(self) -> Part | None:
        """What cannot be timed as a whole first, then the largest that deserves it."""
        for part in self.parts:
            if self._has_no_forward(part.module()) and part.depth < _DEEPEST_WITHOUT_FORWARD and self._children(part):
                return part
        roots = [part for part in self.parts if part.depth == 0 and self._children(part)]
        if roots:
            return roots[0]
        by_size = sorted(self.parts, key=lambda part: -part.parameters)
        for part in by_size:
            if part.depth >= _DEEPEST or not self._is_worth_opening(part):
                continue
            few = len(self.parts) < _FEW_STAGES and isinstance(part.module(), self._containers)
            if part.parameters > _LARGE * self._total or few:
                return part
        return None

    def _has_no_forward(self, module: Any) -> bool:
        """Such as a ModuleList. One that is gone has none either."""
        if module is None:
            return True
        return type(module).forward is self._torch.nn.Module.forward and "forward" not in vars(module)

    def _children(self, part: Part) -> list[tuple[str, Any]]:
        return [(name, child) for name, child in children_of(part.module()) if id(child) not in self._seen]

    def _is_worth_opening(self, part: Part) -> bool:
        """With a single part that has none itself, the table would say the same under a longer name."""
        children = self._children(part)
        return len(children) > 1 or any(children_of(child) for _, child in children)

    def _open(self, part: Part) -> None:
        at = self.parts.index(part)
        before, after = self.parts[:at], self.parts[at + 1 :]
        children = self._children(part)
        wraps = len(children) == 1 and children[0][0] in _WRAPPED
        self.parts = []
        for name, child in children:
            if wraps:
                self._add(part.name, part.parent, child, part.depth)
            else:
                path = f"{part.name}.{name}" if part.name else name
                self._add(path, part.name, child, part.depth + 1)
        self.parts = [*before, *self.parts, *after]

    def _number_stages(self) -> None:
        groups = group_parts([part for part in self.parts if not self._has_no_forward(part.module())])
        while sum(len(group) for group in groups) > _MOST_MEMBERS:
            largest = max(groups, key=len)
            groups.remove(largest)
            self.left_out[largest[0].name] = fact("stages.too_many_modules")
        stages = [Stage(self._numbers + n, group) for n, group in enumerate(groups)]
        self._numbers += len(stages)
        usual = next((stage.device for stage in stages if stage.device is not None), None)
        self.stages = []
        for stage in stages:
            # What has no parameters works where the others do.
            stage.device = stage.device or usual
            if stage.device is None:
                self.left_out[stage.name] = fact("stages.on_unknown_device")
            elif stage.device.type in ("cpu", "cuda"):
                self.stages.append(stage)
            else:
                self.left_out[stage.name] = fact("stages.on_device", device=stage.device.type)


def group_parts(parts: list[Part]) -> list[list[Part]]:
    """Neighbours under one parent together, until there are no more groups than lines in the table."""
    groups = [[part] for part in parts]
    while len(groups) > MOST_STAGES:
        runs = [list(run) for _, run in groupby(groups, key=lambda group: group[0].parent)]
        longest = max(runs, key=len)
        if len(longest) == 1:
            # No neighbours anywhere: the small ones are not timed.
            kept = sorted(groups, key=lambda group: -sum(part.parameters for part in group))[:MOST_STAGES]
            return [group for group in groups if group in kept]
        wanted = max(1, len(longest) - (len(groups) - MOST_STAGES))
        members = [part for group in longest for part in group]
        groups = [group for run in runs for group in (_chunks(members, wanted) if run is longest else run)]
    return groups


def _chunks(members: list[Part], count: int) -> list[list[Part]]:
    size, more = divmod(len(members), count)
    ends = [0]
    for n in range(count):
        ends.append(ends[-1] + size + (n < more))
    return [members[a:b] for a, b in pairwise(ends)]


def trained_models(torch: Any) -> list[Any]:
    """The outermost modules that hold a parameter of an optimizer, the largest first."""
    modules, optimizers = _alive(torch)
    groups = (group for optimizer in optimizers for group in vars(optimizer).get("param_groups", ()))
    trained = {id(parameter) for group in groups for parameter in group["params"]}
    inner = {id(child) for module in modules for _, child in children_of(module)}
    outer = [module for module in modules if id(module) not in inner]
    roots = [module for module in outer if any(id(p) in trained for p in _parameters([module]))]
    return sorted(roots, key=lambda root: -count_parameters([root]))[:_MOST_ROOTS]


def _alive(torch: Any) -> tuple[list[Any], list[Any]]:
    """All modules and optimizers there are. By type alone: asking an object for its class may run the script's code."""
    things = gc.get_objects()
    # Of some hundred thousand objects with a few thousand types: once over the types is quick.
    kinds = set(map(type, things))
    modules = {kind for kind in kinds if torch.nn.Module in kind.__mro__}
    optimizers = {kind for kind in kinds if torch.optim.Optimizer in kind.__mro__}
    wanted = modules | optimizers
    found = [thing for thing in things if type(thing) in wanted]
    return [t for t in found if type(t) in modules], [t for t in found if type(t) in optimizers]


def children_of(module: Any) -> list[tuple[str, Any]]:
    children = vars(module).get("_modules") if module is not None else None
    return [(name, child) for name, child in children.items() if child is not None] if children else []


def _parameters(modules: Iterable[Any]) -> Iterator[Any]:
    seen: set[int] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        waiting += [child for _, child in children_of(module)]
        for parameter in (vars(module).get("_parameters") or {}).values():
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                yield parameter


def count_parameters(modules: Iterable[Any]) -> int:
    total = 0
    for parameter in _parameters(modules):
        try:
            total += int(parameter.numel())
        except Exception:
            pass  # a lazy one, whose shape is not known yet
    return total


def _root_names(roots: list[Any]) -> list[str]:
    names: list[str] = []
    for root in roots:
        name = type(root).__name__
        count = sum(given.partition("#")[0] == name for given in names)
        names.append(f"{name}#{count + 1}" if count else name)
    return names

"""Which code runs in every training step: loops that run backward and an optimizer step, and what they call."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flatout.source.flow.guards import ProgramPoint, is_evaluation, walk_main_path
from flatout.source.project.project import Project
from flatout.source.syntax.module import Function, Module
from flatout.source.syntax.nodes import (
    DEFINITIONS,
    LOOPS,
    MAX_HOPS,
    all_arguments,
    called_name,
    children,
    decorator_names,
    dotted_name,
    last_name,
    registers_hook,
    root_name,
    walk_scope,
)

_BACKWARD, _STEP = "backward", "step"
_BACKWARDS = {"backward", "manual_backward", "backward_step"}
# Helpers that step one optimizer or several: `optimizer_step`, `step_optimizers`, `optimizer_step_all`.
_STEPS = re.compile(r"^apply_gradients$|optim\w*_step(_|$)|(^|_)step_(all_)?optim", re.I)
# Objects whose `.step()` is not an optimizer step.
_OTHER_STEPS = re.compile(r"env|sched|prof|timer|sim|game|warm|anneal|decay|progress|bar|writer|logger|world|ema", re.I)
_SEEDS = ("backward(", "backward_step(", "def training_step", "def compute_loss")
# Methods that a framework calls for each batch, with parts of the names of their base classes.
_FRAMEWORK = {
    "training_step": ("Module", "Trainer", "Model", "Task", "System", "Runner", "Lit"),
    "compute_loss": ("Trainer",),
}
_OPTIMIZES = re.compile(r"\b(optim|torch_optim)\.\w+\(\s*[\w.]*parameters\(\)|\bAdamW?\(\s*[\w.]+\.parameters\(\)")
_HOOKS = re.compile(r"(^|_)(hooks|callbacks|handlers|plugins|listeners)$", re.I)
_STEPPING = re.compile(r"train|step|update|optimi[sz]e|learn|fit|iter|batch", re.I)
_ASIDE = re.compile(
    r"(^|_)(eval\w*|valid\w*|val|test\w*|infer\w*|predict\w*|save\w*|checkpoint\w*|plot\w*|visuali[sz]e\w*|vis|export\w*"
    # Building targets, masks or a graph for each batch is part of the step.
    r"|dump\w*|debug\w*|summar\w*|setup|build(?!_?(target|anchor|mask|label|input|batch|loss|graph))\w*|init\w*"
    r"|make_dataset|load\w*)(_|$)",
    re.I,
)
_LOGGING = re.compile(r"(^|_)(save|dump|write)_(logs?|losses|metrics?|scalars?|stats)(_|$)", re.I)
_SCORES = re.compile(r"^(decision_function|score|predict\w*|encode|transform|embed\w*)$", re.I)
# Methods that run when an object is called, by whatever name.
_CALLED_UNNAMED = {"forward", "__call__"}
_MOST_REGIONS = 400

Loop = ast.For | ast.AsyncFor | ast.While


@dataclass(frozen=True, slots=True)
class CallSite:
    """A call on the way from the training loop to a function."""

    call: ast.Call
    caller: Region


@dataclass(slots=True, eq=False)
class Region:
    """Statements that run in every step: the body of a training loop, or of a function that it calls."""

    function: Function
    body: Sequence[ast.stmt]
    # The training loop whose body the region is.
    loop: Loop | None = None
    # The call by which a loop reaches it; None for the loop itself, and for methods that a framework calls.
    call_site: CallSite | None = None
    _main_path: list[ProgramPoint] | None = None

    @property
    def module(self) -> Module:
        return self.function.module

    @property
    def root(self) -> Region:
        return self if self.call_site is None else self.call_site.caller.root

    @property
    def depth(self) -> int:
        return 0 if self.call_site is None else self.call_site.caller.depth + 1

    def call_chain(self, node: ast.AST) -> Iterator[tuple[Region, ast.AST]]:
        """The region with a node of it, then each caller with its call, up to the root."""
        yield self, node
        if self.call_site is not None:
            yield from self.call_site.caller.call_chain(self.call_site.call)

    def ancestors(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """What a node is part of within the region, from inside out, each with the child that leads to the node."""
        for parent, child in self.module.ancestors(node):
            if parent is self.loop or parent is self.function.node:
                return
            yield parent, child

    def main_path(self) -> list[ProgramPoint]:
        """Every node that runs in every step."""
        if self._main_path is None:
            self._main_path = list(walk_main_path(self.body, self.function))
        return self._main_path


class Training:
    """All training of a project. `regions` are in the order they are reached, training loops first."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.loops: list[tuple[Loop, Function]] = []
        self._found: set[int] = set()
        self._effects: dict[int, frozenset[str]] = {}
        # Functions that a training loop calls for its backward or step.
        self._absorbed: set[int] = set()
        # The trainings, by number, that each module takes part in.
        self._of_module: dict[int, set[int]] | None = None
        self._imports: dict[int, list[Module]] = {}
        self._search()
        self.regions = self._expand([*self._roots()])

    # Finding training loops.

    def _search(self) -> None:
        """Goes up from functions that call backward or step to all their callers, then down again for effects."""
        seeds = [
            f
            for module in self.project.modules
            if any(seed in module.text for seed in _SEEDS)
            for f in module.functions
        ]
        self._seeds = seeds
        waiting = [(f, 0) for f in seeds if any(_direct_effects(call) for call in f.calls)]
        hot: dict[int, Function] = {}
        while waiting:
            function, depth = waiting.pop()
            if id(function) in hot:
                continue
            hot[id(function)] = function
            # A closure runs in the function around it.
            above = [function.parent] if function.parent is not None else []
            if depth < MAX_HOPS:
                callers = [inside for _, inside in self.project.callers(function)]
                waiting += [(node, depth + 1) for node in (*callers, *above)]
        self._hot = {f.owner.name if f.name == "__init__" and f.owner else f.name for f in hot.values()}
        for function in hot.values():
            self.effects(function)

    def effects(self, function: Function, depth: int = 0) -> frozenset[str]:
        """What a call of the function does outside of training loops in it: backward, step, both or neither."""
        if id(function) not in self._effects:
            self._effects[id(function)] = frozenset()  # while it is being looked at
            if depth <= MAX_HOPS:
                done: set[str] = set()
                for statement in function.node.body:
                    done |= self._effects_of(statement, function, depth)
                # What it does beside a training loop, at the end of an epoch say, is not a step of its caller.
                holds_a_loop = any(of is function for _, of in self.loops)
                self._effects[id(function)] = frozenset() if holds_a_loop else frozenset(done)
        return self._effects[id(function)]

    def _effects_of(self, node: ast.AST, function: Function, depth: int) -> set[str]:
        if isinstance(node, DEFINITIONS):
            return set()
        done: set[str] = set()
        for child in children(node):
            done |= self._effects_of(child, function, depth)
        if isinstance(node, ast.Call):
            done |= self._effects_of_call(node, function, depth)
        elif isinstance(node, LOOPS) and done >= {_BACKWARD, _STEP}:
            if isinstance(node, ast.For) and _HOOKS.search(last_name(node.iter)):
                return done  # it goes over the hooks of one step: the training loop is further out
            if _is_scoring(node, function):
                return set()
            if id(node) not in self._found:
                self._found.add(id(node))
                self.loops.append((node, function))
                self._absorb(node, function, 0)
            return set()
        return done

    def _effects_of_call(self, call: ast.Call, function: Function, depth: int) -> set[str]:
        # `trainer.step(batch)` may be an optimizer's step, or run one together with its backward.
        done = _direct_effects(call)
        name = called_name(call)
        # Only names that can lead to a backward are followed.
        known = name in self._hot or name in function.bindings or not self._hot.isdisjoint(_CALLED_UNNAMED)
        callees = self.project.resolve(call, function) if known else []
        # `optimizer.step(closure)`: the closure runs the backward.
        for callee in (*callees, *self._passed_functions(call, function)):
            done |= self.effects(callee, depth + 1)
        return done

    def _callees(self, call: ast.Call, function: Function) -> list[Function]:
        return [*self.project.resolve(call, function), *self._passed_functions(call, function)]

    def _passed_functions(self, call: ast.Call, function: Function) -> list[Function]:
        """Functions passed as arguments: those defined in this function, and hooks."""
        found = []
        for given in all_arguments(call):
            if isinstance(given, ast.Name):
                meant = self.project.lookup(given.id, function)
                if isinstance(meant, Function) and (meant.parent is function or registers_hook(call)):
                    found.append(meant)
        return found

    def _absorb(self, node: ast.AST, function: Function, depth: int) -> None:
        for part in walk_scope(node):
            if isinstance(part, ast.Call):
                for callee in self._callees(part, function):
                    if self._effects.get(id(callee)) and id(callee) not in self._absorbed and depth < MAX_HOPS:
                        self._absorbed.add(id(callee))
                        self._absorb(callee.node, callee, depth + 1)

    # Regions.

    def _roots(self) -> Iterator[Region]:
        for loop, function in self.loops:
            yield Region(function, loop.body, loop)
        for function in self._seeds:
            if self._is_called_by_a_framework(function) or self._is_a_step_of_its_own(function):
                yield Region(function, function.node.body)

    def _is_called_by_a_framework(self, function: Function) -> bool:
        endings = _FRAMEWORK.get(function.name)
        if endings is None or function.owner is None:
            return False
        named = [base.split(".")[-1] for base in function.owner.bases]
        return any(ending in base for ending in endings for base in named)

    def _is_a_step_of_its_own(self, function: Function) -> bool:
        """Does it run backward and step at each call, and is the loop that calls it outside of the project?"""
        return (
            function.definition is not None
            and self._effects.get(id(function), frozenset()) >= {_BACKWARD, _STEP}
            and id(function) not in self._absorbed
            and bool(_STEPPING.search(function.name))
            and not any(self._is_step_like(caller) for _, caller in self.project.callers(function))
        )

    def _is_step_like(self, function: Function) -> bool:
        """Is it the step itself: called outside of loops, and named as a step?"""
        return (
            function.definition is None
            or id(function) in self._absorbed
            or bool(_STEPPING.search(function.name) and self._effects.get(id(function)))
            or any(of is function for _, of in self.loops)
        )

    def _expand(self, regions: list[Region]) -> list[Region]:
        known = {id(region.function.node) for region in regions if region.loop is None}
        at = 0
        while at < len(regions) and len(regions) < _MOST_REGIONS:
            region = regions[at]
            at += 1
            if region.depth >= MAX_HOPS:
                continue
            for call in [point.node for point in region.main_path() if isinstance(point.node, ast.Call)]:
                for callee in self._callees(call, region.function):
                    if id(callee.node) not in known and _is_part_of_step(callee):
                        known.add(id(callee.node))
                        regions.append(Region(callee, callee.node.body, call_site=CallSite(call, region)))
        return regions

    # Files that take part.

    def takes_part(self, module: Module) -> bool:
        """Is it a file of a training: one with a training loop, or one that such a file imports?"""
        return bool(self._trainings_of(module))

    def are_together(self, module: Module, other: Module) -> bool:
        """Do two files take part in the same training?"""
        return not self._trainings_of(module).isdisjoint(self._trainings_of(other))

    def _trainings_of(self, module: Module) -> set[int]:
        if self._of_module is None:
            self._of_module = {id(other): set() for other in self.project.modules}
            roots = {id(region.module): region.module for region in self.regions if region.call_site is None}
            # With Lightning, loaders may be in a file that only the command line connects to the module.
            roots |= {id(m): m for m in self.project.mentioning("train_dataloader") if "def train_dataloader" in m.text}
            # A file that makes an optimizer and a loader trains, though the loop may be a library's.
            roots |= {id(m): m for m in self.project.mentioning("DataLoader") if _OPTIMIZES.search(m.text)}
            for number, root in enumerate(roots.values()):
                self._mark_imported(number, root)
        return self._of_module[id(module)]

    def _mark_imported(self, number: int, root: Module) -> None:
        assert self._of_module is not None
        # Scripts that call a training function of this module take part as well.
        inside = {id(f): f for _, f in self.loops if f.module is root and f.definition is not None}
        starters = [caller.module for function in inside.values() for _, caller in self.project.callers(function)]
        waiting = [root, *starters]
        while waiting:
            here = waiting.pop()
            if number not in self._of_module[id(here)]:
                self._of_module[id(here)].add(number)
                waiting += self._imported(here)

    def _imported(self, module: Module) -> list[Module]:
        if id(module) not in self._imports:
            found = (self.project.module_from(name, module) for name in module.imported_names)
            self._imports[id(module)] = [imported for imported in found if imported is not None]
        return self._imports[id(module)]


def _is_scoring(loop: Loop, function: Function) -> bool:
    """Does a loop evaluate, by its function's name and `eval()`, though something it calls may be fitted?"""
    if not (is_evaluation(function.name) or _SCORES.search(function.name)):
        return False
    return any(call.lineno < loop.lineno and called_name(call) == "eval" for call in function.calls)


def _direct_effects(call: ast.Call) -> set[str]:
    name = called_name(call)
    if name in _BACKWARDS:
        # Whatever calls backward trains.
        return {_BACKWARD}
    if _STEPS.search(name):
        return {_STEP}
    if name == "step" and isinstance(call.func, ast.Attribute):
        owner = dotted_name(call.func.value) or root_name(call.func.value)
        if not _OTHER_STEPS.search(owner.split(".")[-1]):
            return {_STEP}
    return set()


def _is_part_of_step(function: Function) -> bool:
    """Is a function that the step calls part of the step? Not if it is named for evaluation, saving or set-up."""
    if function.name == "__init__":
        return False
    if is_evaluation(function.name) or (_ASIDE.search(function.name) and not _LOGGING.search(function.name)):
        return False
    plain = function.definition
    return plain is None or not any("cache" in name for name in decorator_names(plain))

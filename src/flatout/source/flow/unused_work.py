"""What a training does in each step and never uses: statements beside backward of which nothing leads to an update.

By names, in the text of one file: what a statement binds or may change is followed through the rest of the step, and
through the next one until it is bound anew. If none of it reaches a statement that trains (`backward`, `step`), or one
that decides where the step goes on, the training would be the same without. A function of the same file is looked into;
of any other call it is assumed that it may change what it is called on and what it is given.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from flatout.source.syntax.module import parse_text
from flatout.source.syntax.nodes import called_name, walk_scope

_TRAINS = {"backward", "step", "zero_grad", "clip_grad_norm_", "clip_grad_value_", "unscale_", "manual_backward"}
_LEAVES = (ast.Break, ast.Continue, ast.Return, ast.Raise, ast.Yield, ast.YieldFrom, ast.Await, ast.Delete, ast.Global)
_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_Function = ast.FunctionDef | ast.AsyncFunctionDef
# Statements that only do something; others decide, or check.
_WORKS = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.If, ast.For)
# What these are called on is changed.
_CHANGES = {"append", "extend", "add", "insert", "update", "push", "put", "store", "remember", "pop", "popleft"}
# All attributes of the object that a method belongs to.
_ALL_OWN = "self.*"


@lru_cache(maxsize=64)
def unused_blocks(text: str) -> tuple[range, ...]:
    """Lines of such statements."""
    tree = parse_text(text).tree
    functions: dict[str, list[_Function]] = {}
    for node in ast.walk(tree):
        if isinstance(node, _Function):
            functions.setdefault(node.name, []).append(node)
    known = {name: made[0] for name, made in functions.items() if len(made) == 1}
    kept = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value)
    }
    reader = _Reader(known, kept)
    found: list[range] = []
    for given, body in _step_bodies(tree):
        # First what each step begins with: the batch of a loop, what a function is given.
        effects = [_Effect(bound=given), *(reader.of(statement) for statement in body)]
        _follow_aliases(body, effects[1:])
        # A loss, which each step makes anew, keeps nothing.
        updated = set().union(*(each.updates for each in effects)) - set().union(*(each.bound for each in effects))
        for place, statement in enumerate(body, 1):
            effect = effects[place]
            if effect.may_be_left_out and updated.isdisjoint(effect.asks) and not _is_used(effects, place):
                found.append(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    return tuple(found)


def _step_bodies(tree: ast.AST) -> Iterator[tuple[set[str], list[ast.stmt]]]:
    """Of the innermost loops, else functions, that call backward themselves, with the names that they bind anew."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.While | ast.FunctionDef):
            body = list(_flat(node.body))
            plain = [statement for statement in body if not isinstance(statement, ast.For | ast.While)]
            if any(_calls(statement, {"backward"}) for statement in plain):
                yield _given(node), body


def _given(node: ast.For | ast.While | ast.FunctionDef) -> set[str]:
    """What a loop begins each step with; what a function is given may be the same object as the time before."""
    return _names_in(node.target) if isinstance(node, ast.For) else set()


def _names_in(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _follow_aliases(body: Sequence[ast.stmt], effects: Sequence[_Effect]) -> None:
    """What is changed by another name is changed: `pool = self.pool`, and then `pool.add(x)`."""
    names: dict[str, str] = {}
    for statement in body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Name | ast.Attribute | ast.Subscript):
            for target in statement.targets:
                names |= {name: _owner(statement.value) for name in _names_in(target)}
    for effect in effects:
        effect.changes |= {names[name] for name in effect.changes - effect.bound if name in names} - {""}


def _flat(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """What stands in a `with` is done like what stands beside it, behind what the `with` itself does."""
    for statement in body:
        if isinstance(statement, ast.With):
            yield ast.copy_location(ast.With(items=statement.items, body=[]), statement)
            yield from _flat(statement.body)
        else:
            yield statement


def _calls(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(part, ast.Call) and called_name(part) in names for part in walk_scope(node))


@dataclass(slots=True)
class _Effect:
    """What a statement reads, and what it may change; of `bound` nothing is left that was there before."""

    reads: set[str] = field(default_factory=set)
    changes: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    trains: bool = False
    # Into tensors, as an average of weights does, or into what a function is given.
    writes_in_place: bool = False
    # What it asks something of, and what an update is asked of: `engine(x)` may prepare for `engine.backward()`.
    asks: set[str] = field(default_factory=set)
    updates: set[str] = field(default_factory=set)
    # It does something, and nothing in it is beyond what is understood here.
    may_be_left_out: bool = False


def _is_used(effects: Sequence[_Effect], place: int) -> bool:
    """Does anything that it changes reach what trains, in this step or a later one?"""
    tainted = set(effects[place].changes)
    for _ in range(2):
        for step in (range(place + 1, len(effects)), range(place)):
            for number in step:
                effect = effects[number]
                if _meet(effect.reads, tainted):
                    if effect.trains:
                        return True
                    tainted |= effect.changes
                else:
                    tainted -= effect.bound
    return False


def _meet(reads: set[str], tainted: set[str]) -> bool:
    if not reads.isdisjoint(tainted):
        return True
    is_of_own = any(name.startswith("self.") for name in reads), any(name.startswith("self.") for name in tainted)
    return all(is_of_own) and (_ALL_OWN in reads or _ALL_OWN in tainted)


class _Reader:
    """`functions` by their names, where there is one of it; `kept`: attributes that some object is given."""

    def __init__(self, functions: Mapping[str, _Function], kept: set[str]) -> None:
        self._functions = functions
        self._kept = kept
        self._looked_into: dict[str, _Effect] = {}

    def of(self, statement: ast.stmt) -> _Effect:
        effect = _Effect()
        nodes = list(walk_scope(statement))
        discarded = _discarded(nodes)
        for node in nodes:
            self._add(node, effect, discarded)
        leaves = any(isinstance(node, _LEAVES) for node in nodes)
        defines = any(isinstance(node, _DEFINES) for node in ast.walk(statement))
        # It decides what is done.
        effect.trains = effect.trains or leaves
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.For):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            bound = {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
            effect.bound = {name for name in bound if name in effect.changes} - effect.reads
        for loop in (node for node in nodes if isinstance(node, ast.For)):
            # What it goes over is what its variables are parts of.
            if {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)} & effect.changes:
                effect.changes |= {_owner(node) for node in ast.walk(loop.iter)} - {""}
        works = isinstance(statement, _WORKS) and any(isinstance(node, ast.Call) for node in nodes)
        # What is done for nothing that is known of may be done for anything.
        is_known = bool(effect.changes) or all(self._is_known(node) for node in nodes if id(node) in discarded)
        effect.may_be_left_out = works and is_known and not (effect.trains or effect.writes_in_place or defines)
        return effect

    def _is_known(self, node: ast.AST) -> bool:
        """Is it a call of a function of this file, or of Python's own?"""
        return _is_plain_call(node) or (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self._functions
        )

    def _add(self, node: ast.AST, effect: _Effect, discarded: set[int]) -> None:
        if isinstance(node, ast.Name) and node.id != "self":
            (effect.reads if isinstance(node.ctx, ast.Load) else effect.changes).add(node.id)
        elif isinstance(node, ast.Attribute | ast.Subscript):
            if not isinstance(node.ctx, ast.Load):
                effect.changes |= {_owner(node)} - {""}
            if isinstance(node, ast.Attribute) and _is_self(node.value):
                effect.reads.add(f"self.{node.attr}")
        elif isinstance(node, ast.AugAssign):
            effect.reads |= {_owner(node.target)} - {""}
        elif isinstance(node, ast.Call):
            self._add_call(node, effect, id(node) in discarded)

    def _add_call(self, call: ast.Call, effect: _Effect, is_discarded: bool) -> None:
        name = called_name(call)
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if name in _TRAINS:
            effect.trains = True
            effect.updates |= {_owner(part) for part in (owner, *given) if part is not None} - {""}
        elif not _is_plain_call(call):
            effect.asks |= {_owner(call.func)} - {""}
        effect.writes_in_place = effect.writes_in_place or (name.endswith("_") and not name.endswith("__"))
        callee = self._functions.get(name)
        if callee is not None:
            inner = self._inside(callee)
            effect.trains = effect.trains or inner.trains
            effect.writes_in_place = effect.writes_in_place or inner.writes_in_place
            if owner is None or _is_self(owner):
                effect.reads |= inner.reads
                effect.changes |= inner.changes
                effect.asks |= inner.asks
        # Of a call whose result nobody takes, what it changes is all that it is for.
        if owner is not None and (is_discarded or name in _CHANGES):
            effect.changes |= {_owner(owner)} - {""}
        if callee is None and (is_discarded or name in ("next", "setattr")) and not _is_plain(name, owner):
            effect.changes |= {_owner(value) for value in given} - {""}
        if callee is None and is_discarded and not _is_plain(name, owner):
            effect.changes |= {_owner(call.func)} - {""}  # a module, perhaps, which keeps what it has seen
        if callee is None and owner is None and not given and not _is_plain(name, owner):
            effect.writes_in_place = True  # it may do anything
        # A method that is not in this file, or is one of several; not a module that the object keeps.
        is_own = owner is not None and _is_self(owner) and callee is None and name not in self._kept
        if is_own or any(_is_self(value) for value in given) or _is_self(call.func):
            effect.reads.add(_ALL_OWN)
            effect.changes.add(_ALL_OWN)

    def _inside(self, function: _Function) -> _Effect:
        """What a function does to the object that it belongs to, and whether it writes into what it is given."""
        if function.name in self._looked_into:
            return self._looked_into[function.name]
        # One that calls itself, by others perhaps, is not followed.
        self._looked_into[function.name] = _Effect(writes_in_place=True)
        effect = _Effect()
        nodes = list(walk_scope(function))
        discarded, own = _discarded(nodes), _parameters(function)
        for node in nodes:
            if isinstance(node, ast.Attribute) and _is_self(node.value):
                (effect.reads if isinstance(node.ctx, ast.Load) else effect.changes).add(f"self.{node.attr}")
            elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
                owner = _owner(node)
                effect.changes |= {owner} - {""}
                effect.writes_in_place = effect.writes_in_place or owner in _parameters(function)
            elif isinstance(node, ast.Global | ast.Nonlocal):
                effect.writes_in_place = True
            elif isinstance(node, ast.Name) and node.id != "self":
                (effect.reads if isinstance(node.ctx, ast.Load) else own).add(node.id)
            elif isinstance(node, ast.Call) and self._functions.get(called_name(node)) is not function:
                self._add_call(node, effect, id(node) in discarded)
        # Its own variables are nobody else's; those around it are.
        effect.reads -= own
        effect.changes -= own
        self._looked_into[function.name] = effect
        return effect


def _discarded(nodes: Sequence[ast.AST]) -> set[int]:
    """Calls whose result nobody takes."""
    return {id(node.value) for node in nodes if isinstance(node, ast.Expr)}


def _parameters(function: _Function) -> set[str]:
    given = function.args
    return {each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)}


# Built-in functions that change nothing that they are given.
_PLAIN = frozenset(dir(builtins))


def _is_plain(name: str, owner: ast.AST | None) -> bool:
    return owner is None and name in _PLAIN and name not in ("setattr", "delattr", "next", "exec", "eval")


def _is_plain_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and _is_plain(node.func.id, None)


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _owner(node: ast.AST) -> str:
    """The variable that it is or is part of; of `self` its attribute. Empty: a value of its own."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        if isinstance(node, ast.Attribute) and _is_self(node.value):
            return f"self.{node.attr}"
        node = node.value
    return node.id if isinstance(node, ast.Name) and node.id != "self" else ""

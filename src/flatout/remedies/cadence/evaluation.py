"""The model is evaluated every k-th time only, and the last time.

What evaluates is found in the run: a function of the script's own that puts the model into eval mode, goes through data
and returns before the next step. From its second call on it is called once in k times; in between the caller gets what
the last call returned. Where several sets are gone through at one place, each has its own turn. The last time is always
kept where the loop tells its end: `for epoch in range(…)`, `while step < steps`. Calls from another place, after the
training say, are made as ever.

Of the training class: random numbers that an evaluation draws are not drawn, and what is known of the training is known
at fewer moments. It is left alone, with the reason, where the evaluation is no function of its own, where that function
trains, saves or steps a schedule as well, and where something hangs on its result (early stopping, the best model, a
schedule) or may hang on an attribute that it sets, unless `force` is set.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from types import CodeType, FrameType, FunctionType
from typing import Any

from ...records.message import Message, message
from ..answers import Answer, Report, by_finding, yes
from ..site import Site
from ..traits import Bottleneck, Evidence, Pauses, Traits
from ..user_code import OURS, Function, definition_of, parse, source_of
from ..values import Count, Flag, Options

ID = "cadence.eval"
TITLE = "The model is evaluated every k-th time only, and the last time"
SAFETY = "training"
TRAITS = Traits(
    Bottleneck.PAUSES,
    pauses=Pauses.AT_EVENTS,
    evidence=Evidence("function", message("experiment.no_evaluation_seen")),
)
_USUAL = 5
VALUE = Options({"every": Count(2, 100_000), "force": Flag()}, {"every": _USUAL, "force": False})
# Steps of which the stack is looked at: what is on it trains.
_LOOKS_AT_STEPS = 3


def applies(report: Report) -> Answer:
    answer = by_finding(ID, message("cadence_eval.short"), "interval_times", _USUAL)(report)
    return yes({"every": answer.value, "force": False}, answer.why) if answer.is_yes else answer


def apply(site: Site, value: Any) -> None:
    seldom = _EvaluationSchedule(site, int(value["every"]), bool(value["force"]))
    site.replace(site.torch.nn.Module, "eval", seldom.make_eval)
    site.each_step(seldom.after_step)


@dataclass(slots=True)
class _Turn:
    """Of one of the calls that are made between two steps, the first or the second or a later one."""

    count: int = 0
    result: Any = None
    # Where the loop was at the last call.
    loop_at: int | None = None


class _EvaluationSchedule:
    def __init__(self, site: Site, every: int, force: bool) -> None:
        self._site = site
        self._every = every
        self._force = force
        self._trains: set[CodeType] = set()
        self._evaluates: CodeType | None = None
        self._is_inside = False
        self._turns: dict[int, _Turn] = {}
        self._taken_at = self._at_step = -1
        self._calls_at_step = 0
        # Who calls it in the loop. A call from elsewhere, after the training say, is another matter.
        self._caller: tuple[CodeType, int | None] | None = None

    def make_eval(self, original: Any) -> Any:
        compiling = self._site.torch.compiler.is_dynamo_compiling

        def eval(module: Any) -> Any:
            if not compiling() and self._site.in_force and self._site.step >= _LOOKS_AT_STEPS and not self._is_inside:
                frame = sys._getframe(1)
                self._site.guarded(lambda: self._seen(frame))
            return original(module)

        return eval

    def after_step(self, step: int) -> None:
        if step <= _LOOKS_AT_STEPS:
            self._trains |= {frame.f_code for frame in _user_frames(sys._getframe(1))}

    def _seen(self, frame: FrameType) -> None:
        """The model goes into eval mode; who does it?"""
        if self._evaluates is not None:
            self._site.give_up(message("cadence_eval.cannot_replace", function=self._evaluates.co_name))
            return
        callers = _user_frames(frame)
        for item, caller in pairwise(callers):
            if item.f_code in self._trains:
                break
            if has_loop(item.f_code):
                self._take(item, caller)
                return
        self._site.give_up(message("cadence_eval.no_function"))

    def _take(self, frame: FrameType, caller: FrameType) -> None:
        code, site = frame.f_code, self._site
        owners = _owners(frame, caller)
        why_not = self._why_not(code, caller)
        if why_not is None and not owners:
            why_not = message("cadence_eval.not_found", function=code.co_name)
        if why_not is not None:
            site.give_up(why_not)
            return
        self._evaluates = code
        self._caller = (caller.f_code, caller.f_lineno)
        self._taken_at = self._at_step = site.step
        # The first one was seen, not caught: what it returned is not known.
        self._turns = {0: _Turn(loop_at=(loop_position(caller) or (None,))[0])}
        for owner, name in owners:
            site.replace(owner, name, self._make)
        ends = loop_position(caller) is not None
        site.tell(function=code.co_name, every=self._every, keeps_last=ends, from_step=site.step)

    def _why_not(self, code: CodeType, caller: FrameType) -> Message | None:
        name, more = code.co_name, other_effect(code)
        if more is not None:
            return message("cadence_eval.does_more", function=name, effect=more)
        if self._force:
            return None
        used = use_of_result(caller, name)
        if used is not None:
            return message("cadence_eval.result_used", function=name, use=used)
        left = outer_target(code)
        return message("cadence_eval.sets", function=name, target=left) if left is not None else None

    def _make(self, original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1)
            is_scheduled = (caller.f_code, caller.f_lineno) == self._caller
            turn = self._next_turn() if is_scheduled else _Turn()
            if is_scheduled and self._site.in_force and self._leave_out(turn, caller):
                return turn.result
            self._is_inside = True
            try:
                result = original(*args, **kwargs)
            finally:
                self._is_inside = False
            turn.result = result
            return result

        return call

    def _next_turn(self) -> _Turn:
        if self._at_step == self._site.step:
            self._calls_at_step += 1
        else:
            self._at_step, self._calls_at_step = self._site.step, 0
        return self._turns.setdefault(self._calls_at_step, _Turn())

    def _leave_out(self, turn: _Turn, caller: FrameType) -> bool:
        """Count the call; whether it is left out."""
        loop = self._site.guarded(lambda: loop_position(caller))
        is_last = False
        if loop is not None:
            now, last = loop
            between = abs(now - turn.loop_at) if turn.loop_at is not None else 0
            is_last = between > 0 and abs(last - now) < between
            turn.loop_at = now
        if self._site.step == self._taken_at:
            return False  # those after the one that was seen
        turn.count += 1
        return turn.count > 1 and (turn.count - 1) % self._every != 0 and not is_last


def _user_frames(frame: FrameType | None) -> list[FrameType]:
    found = []
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(("<", *OURS)) and "site-packages" not in name and "dist-packages" not in name:
            found.append(frame)
        frame = frame.f_back
    return found


def _owners(frame: FrameType, caller: FrameType) -> list[tuple[Any, str]]:
    """Where the function is found by its name: a class, its module, and a module that has imported it."""
    code = frame.f_code
    found: list[tuple[Any, str]] = []
    if code.co_argcount:
        first = frame.f_locals.get(code.co_varnames[0])
        found += [(owner, code.co_name) for owner in type(first).__mro__ if _is_of(vars(owner).get(code.co_name), code)]
    for item in (frame, caller):
        module = sys.modules.get(str(item.f_globals.get("__name__")))
        if module is not None:
            names = [name for name, value in vars(module).items() if _is_of(value, code)]
            found += [(module, name) for name in names if (module, name) not in found]
    return found


def _is_of(value: Any, code: CodeType) -> bool:
    return isinstance(value, FunctionType) and getattr(inspect.unwrap(value), "__code__", None) is code


# What the source says about the function that evaluates and its caller. By the syntax alone; what cannot be told is
# None, and the script is then left as it is.

# Calls to which a result may be handed without anything hanging on it.
_SHOWS = (
    "print", "log", "info", "debug", "warning", "add_scalar", "add_scalars", "write", "format", "set_postfix",
    "set_description", "update", "str", "round", "float",
)  # fmt: skip
# Calls that make a function more than an evaluation.
_TRAINS = {
    "backward": message("cadence_eval.trains"),
    "save": message("cadence_eval.saves"),
    "state_dict": message("cadence_eval.saves"),
    "step": message("cadence_eval.steps"),
}


def body_of(code: CodeType) -> Function | ast.Module | None:
    """The syntax that this code was made of."""
    tree = parse(source_of(code))
    if tree is None or not tree.body:
        return None
    return tree if code.co_name == "<module>" else definition_of(code, tree)


def has_loop(code: CodeType) -> bool:
    body = body_of(code)
    return body is not None and any(isinstance(node, ast.For | ast.comprehension) for node in ast.walk(body))


def other_effect(code: CodeType) -> Message | None:
    """What a function does besides evaluating, in a word."""
    body = body_of(code)
    for node in ast.walk(body) if body is not None else ():
        if isinstance(node, ast.Call):
            name = _last_name(node.func)
            if name in _TRAINS:
                return _TRAINS[name]
    return None


def outer_target(code: CodeType) -> str | None:
    """What a function sets that is there when it has returned: an attribute, an entry, a name of others."""
    body = body_of(code)
    nodes = list(ast.walk(body)) if body is not None else []
    own = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in nodes:
        if isinstance(node, ast.Global | ast.Nonlocal):
            return f"`{node.names[0]}`"
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            root: ast.expr = node
            while isinstance(root, ast.Attribute | ast.Subscript):
                root = root.value
            if not (isinstance(root, ast.Name) and root.id in own):
                return _text(node)
    return None


def use_of_result(frame: FrameType, name: str) -> Message | None:
    """What the caller does with what `name(…)` on its present line returns; None if it only shows it."""
    body = body_of(frame.f_code)
    if body is None:
        return message("cadence_eval.unreadable")
    calls = [
        node
        for node in ast.walk(body)
        if isinstance(node, ast.Call)
        and _last_name(node.func) == name
        and node.lineno <= (frame.f_lineno or 0) <= (node.end_lineno or node.lineno)
    ]
    statements = [_statement_of(body, call) for call in calls]
    if not calls:
        return message("cadence_eval.other_name")
    for call, statement in zip(calls, statements, strict=True):
        if isinstance(statement, ast.Expr) and (statement.value is call or _is_shown(statement, call)):
            continue
        if not isinstance(statement, ast.Assign):
            return message("cadence_eval.uses", code=_text(statement))
        used = _use_of_names(body, statement)
        if used is not None:
            return message("cadence_eval.uses", code=used)
    return None


def _use_of_names(body: ast.AST, assignment: ast.Assign) -> str | None:
    names = {node.id for target in assignment.targets for node in ast.walk(target) if isinstance(node, ast.Name)}
    if not all(isinstance(target, ast.Name | ast.Tuple | ast.List) for target in assignment.targets):
        return _text(assignment)
    for node in ast.walk(body):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
            statement = _statement_of(body, node)
            if not isinstance(statement, ast.Expr) or not _is_shown(statement, node):
                return _text(statement)
    return None


def _is_shown(statement: ast.Expr, node: ast.AST) -> bool:
    """Whether the statement is a call that shows it, and nothing on the way decides anything by it."""
    call = statement.value
    if not isinstance(call, ast.Call) or _last_name(call.func) not in _SHOWS:
        return False
    return not any(
        isinstance(item, ast.Compare | ast.IfExp | ast.BoolOp | ast.NamedExpr)
        and any(inner is node for inner in ast.walk(item))
        for item in ast.walk(call)
    )


def _statement_of(body: ast.AST, node: ast.AST) -> ast.stmt | None:
    """The innermost statement; of a loop or a condition, the part that is no block counts as its own."""
    found = None
    for item in ast.walk(body):
        if isinstance(item, ast.stmt) and any(inner is node for part in _own_parts(item) for inner in ast.walk(part)):
            found = item
    return found


def _own_parts(statement: ast.stmt) -> Iterator[ast.AST]:
    for name, value in ast.iter_fields(statement):
        if name not in ("body", "orelse", "finalbody", "handlers"):
            yield from (item for item in (value if isinstance(value, list) else [value]) if isinstance(item, ast.AST))


def loop_position(frame: FrameType) -> tuple[int, int] | None:
    """Of the innermost loop with a known end around the present line: how far it is, and how far it goes."""
    body, line = body_of(frame.f_code), frame.f_lineno or 0
    loops = [
        node
        for node in (ast.walk(body) if body is not None else ())
        if isinstance(node, ast.For | ast.While) and node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0)
    ]
    for loop in sorted(loops, key=lambda loop: -loop.lineno):
        found = _turn_of(loop, frame) if isinstance(loop, ast.For) else _count_of(loop.test, frame)
        if found is not None:
            return found
    return None


def _turn_of(loop: ast.For, frame: FrameType) -> tuple[int, int] | None:
    """`for epoch in range(…)`"""
    values = _range_of(loop.iter, frame)
    now = frame.f_locals.get(loop.target.id) if isinstance(loop.target, ast.Name) else None
    return (now, values[-1]) if values and isinstance(now, int) and now in values else None


def _count_of(test: ast.expr, frame: FrameType) -> tuple[int, int] | None:
    """`while self.step < steps`"""
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Lt | ast.LtE) or len(test.ops) > 1:
        return None
    numbers = _numbers([test.left, *test.comparators], frame)
    return (numbers[0], numbers[1]) if numbers is not None else None


def _range_of(node: ast.expr, frame: FrameType) -> range | None:
    if not isinstance(node, ast.Call) or not node.args:
        return None
    name = _last_name(node.func)
    if name == "tqdm":
        return _range_of(node.args[0], frame)
    numbers = _numbers(node.args, frame) if name in ("range", "trange") else None
    return range(*numbers) if numbers is not None else None


def _numbers(nodes: list[ast.expr], frame: FrameType) -> list[int] | None:
    """What these are just now; None unless all are whole numbers that can be read off without calling anything."""
    if not all(map(_is_plain, nodes)):
        return None
    try:
        found = [_value(node, frame) for node in nodes]
    except Exception:  # whatever a name of the script may raise
        return None
    return found if all(isinstance(item, int) for item in found) else None


def _is_plain(node: ast.expr) -> bool:
    allowed = (ast.Name, ast.Attribute, ast.Constant, ast.BinOp, ast.operator, ast.expr_context, ast.Subscript)
    return all(isinstance(item, allowed) for item in ast.walk(node))


def _value(node: ast.expr, frame: FrameType) -> Any:
    return eval(compile(ast.Expression(node), "<range>", "eval"), frame.f_globals, dict(frame.f_locals))


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.AST | None) -> str:
    words = ast.unparse(node).splitlines()[0] if node is not None else "?"
    return f"`{words[:60]}`"

"""Guards: what in a block runs every time the block does, and what only seldom, once, or during evaluation."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from flatout.source.syntax.module import Function
from flatout.source.syntax.nodes import (
    DEFINITIONS,
    LOOPS,
    all_names_in,
    called_name,
    children,
    dotted_name,
    own_name,
    walk_scope,
)

# always: in each iteration (a setting may turn it off for a whole run); seldom: in every k-th iteration, once, or when
# something is wrong; evaluates: with a model that is not being trained.
Loops = tuple[ast.For | ast.AsyncFor | ast.While, ...]
Frequency = Literal["always", "seldom", "evaluates"]

_CADENCE = re.compile(
    r"every|interval|freq|period|should_(?!step|update|optim|sync)|is_time|_due\b|do_log|log_now|log_this|to_log|is_last|last_batch|first_batch"
    r"|is_first|_steps?_to_|save_now|time_to|need_log|will_log|dump",
    re.I,
)
_DEBUG = re.compile(r"debug|verbose|dry_?run|profil|smoke|sanity|(^|_)vis(uali[sz]e)?(_|$)|plot|trace|benchmark", re.I)
_BROKEN = re.compile(
    r"isnan|isinf|isfinite|is_nan|has_nan|has_inf|overflow|(^|_)nan(_|$)|(^|_)inf(_|$)|diverge|skip", re.I
)
_COUNTER = re.compile(
    r"(^|_)(i|j|n|k|it|iter|iters|iteration|idx|index|step|steps|epoch|batch_idx|batch_i|batch_id|ibatch|global_step|"
    r"n_iter|cur_iter|batch_num|batch_index|count|counter|global_steps|itr|ep|t)$",
    re.I,
)
_CLOCK = re.compile(r"time\(|perf_counter|monotonic|elapsed|last_log|last_print", re.I)
_EVALUATING = re.compile(
    r"(^|_)(eval|evaluate|evaluation|valid|validate|validation|val|test|testing|infer|inference|predict)(_|$)"
    # Generating targets, noise or anchors is part of the step.
    r"|(^|_)generate(_?(sample|image|text|caption|output|preview|video|audio|example|report)s?)?$",
    re.I,
)
_ON_GPU = re.compile(r"^(use_|with_|is_|has_)?(cuda|gpu)(_available)?$", re.I)
_TRAINING = re.compile(r"(^|_)(train|training|fit)(_|$)", re.I)
_REMAINDERS = {"remainder", "fmod", "mod", "divmod"}
# Tests of whether to go on, `if self.stop_training: break`, do not tell training from evaluation.
_GOES_ON = re.compile(
    r"(^|_)(stop\w*|paus\w*|resum\w*|abort\w*|finish\w*|done|end|ended|start\w*|begin|continue)(_|$)", re.I
)


@dataclass(frozen=True, slots=True)
class ProgramPoint:
    """A node that runs in each iteration, and the loops around it within the iteration, outer first."""

    node: ast.AST
    loops: Loops = ()
    # The statement it is part of.
    statement: ast.stmt | None = None


def walk_main_path(body: Sequence[ast.stmt], function: Function) -> Iterator[ProgramPoint]:
    """Every node that runs each time the block does, in the order of the text.

    Functions defined in it are left out: they run where they are called.
    """
    yield from _block(body, function, ())


def _block(body: Sequence[ast.stmt], function: Function, loops: Loops) -> Iterator[ProgramPoint]:
    for at, statement in enumerate(body):
        if isinstance(statement, DEFINITIONS):
            continue
        if isinstance(statement, ast.If):
            yield from _parts(statement.test, statement, function, loops)
            now, otherwise = branch_frequency(statement.test, function)
            # `if self.kind == "l1": return f(x)`: one of several paths through a function, not the end of a run.
            last = statement.body[-1]
            returns = isinstance(last, ast.Return) and last.value is not None
            if now == "always" and (returns or not _ends_loop(statement.body)):
                yield from _block(statement.body, function, loops)
            if otherwise == "always":
                yield from _block(statement.orelse, function, loops)
            if leaves_block(statement.body) and otherwise != "always":
                return  # `if step % 100: continue`: what follows runs seldom
            continue
        if isinstance(statement, ast.Expr) and _is_switch_to_eval(statement.value):
            # Evaluation until the model is set to train again.
            rest = list(body[at + 1 :])
            back = next((n for n, later in enumerate(rest) if _switches_to_train(later)), None)
            evaluated = rest[: len(rest) if back is None else back]
            # A loop over data is an evaluation, made seldom; a single forward pass in eval mode is part of the step.
            if not any(isinstance(node, LOOPS) for statement in evaluated for node in walk_scope(statement)):
                yield from _block(evaluated, function, loops)
            if back is not None:
                yield from _block(rest[back:], function, loops)
            return
        yield from _compound(statement, function, loops)


def _compound(statement: ast.stmt, function: Function, loops: Loops) -> Iterator[ProgramPoint]:
    if isinstance(statement, ast.For | ast.AsyncFor):
        yield from _parts(statement.iter, statement, function, loops)
        # `val_loader` of `enumerate(tqdm(val_loader))`.
        if not _EVALUATING.search(" ".join(sorted(all_names_in(statement.iter)))):
            yield from _block(statement.body, function, (*loops, statement))
            yield from _block(statement.orelse, function, loops)
    elif isinstance(statement, ast.While):
        yield from _parts(statement.test, statement, function, (*loops, statement))
        yield from _block(statement.body, function, (*loops, statement))
    elif isinstance(statement, ast.With | ast.AsyncWith):
        for item in statement.items:
            yield from _parts(item.context_expr, statement, function, loops)
        yield from _block(statement.body, function, loops)
    elif isinstance(statement, ast.Try) or type(statement).__name__ == "TryStar":
        # Handlers run only when something went wrong.
        for part in (statement.body, statement.orelse, statement.finalbody):  # type: ignore[attr-defined]
            yield from _block(part, function, loops)
    elif isinstance(statement, ast.Match):
        yield from _parts(statement.subject, statement, function, loops)
        for case in statement.cases:
            yield from _block(case.body, function, loops)
    elif not isinstance(statement, ast.Raise):
        yield from _parts(statement, statement, function, loops)


def _parts(node: ast.AST, statement: ast.stmt, function: Function, loops: Loops) -> Iterator[ProgramPoint]:
    stack = [node]
    while stack:
        here = stack.pop()
        yield ProgramPoint(here, loops, statement)
        below = children(here)
        if isinstance(here, ast.IfExp):
            now, otherwise = branch_frequency(here.test, function)
            below = [
                here.test,
                *([here.body] if now == "always" else []),
                *([here.orelse] if otherwise == "always" else []),
            ]
        stack += [child for child in reversed(below) if not isinstance(child, DEFINITIONS)]


def branch_frequency(test: ast.expr, function: Function, depth: int = 0) -> tuple[Frequency, Frequency]:
    """How often the body of `if test` runs, and its `else`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        now, otherwise = branch_frequency(test.operand, function, depth)
        return otherwise, now
    if isinstance(test, ast.BoolOp):
        return _frequency_of_bool_op(test, function, depth)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _frequency_of_comparison(test)
    if _is_remainder(test):
        return "always", "seldom"  # `if step % 100:` holds for most steps
    if isinstance(test, ast.Name | ast.Attribute):
        return _frequency_of_name(test, function, depth)
    if isinstance(test, ast.Call) and dotted_name(test.func).endswith("cuda.is_available"):
        return "always", "seldom"  # only runs with a GPU matter here
    if isinstance(test, ast.Call):
        text = f"{dotted_name(test.func)} {called_name(test)}"
        if _BROKEN.search(text) or _CADENCE.search(text) or any(_asks_for_failure(given) for given in test.args):
            return "seldom", "always"
        if called_name(test) in ("any", "all", "item", "bool") and _asks_for_failure(test):
            return "seldom", "always"
    return "always", "always"


def _frequency_of_bool_op(test: ast.BoolOp, function: Function, depth: int) -> tuple[Frequency, Frequency]:
    parts = [branch_frequency(operand, function, depth)[0] for operand in test.values]
    if isinstance(test.op, ast.And):
        return next((frequency for frequency in parts if frequency != "always"), "always"), "always"
    return "always" if "always" in parts else parts[0], "always"


def _frequency_of_comparison(test: ast.Compare) -> tuple[Frequency, Frequency]:
    left, right, op = test.left, test.comparators[0], test.ops[0]
    if any(_is_remainder(node) for node in (*ast.walk(left), *ast.walk(right))):
        return ("always", "seldom") if isinstance(op, ast.NotEq | ast.Gt) else ("seldom", "always")
    if isinstance(op, ast.In) and isinstance(left, ast.Constant) and left.value in ("cuda", "cpu"):
        return _frequency_of_phase(str(left.value), equal=True)
    words = [side.value for side in (left, right) if isinstance(side, ast.Constant) and isinstance(side.value, str)]
    if words and isinstance(op, ast.Eq | ast.NotEq):
        return _frequency_of_phase(words[0], isinstance(op, ast.Eq))
    is_counted = _is_counter(left)
    is_seldom = (
        bool(_CLOCK.search(ast.unparse(test)))
        # `if step == 0`, `if i == len(loader) - 1`
        or (isinstance(op, ast.Eq) and (is_counted or _is_counter(right)))
        or (isinstance(op, ast.In) and is_counted)
        # `if step < 10`: the first few
        or (isinstance(op, ast.Lt | ast.LtE) and is_counted and isinstance(right, ast.Constant))
        or _asks_for_failure(test)
    )
    return ("seldom", "always") if is_seldom else ("always", "always")


def _is_remainder(node: ast.AST) -> bool:
    """`step % 100`, `np.remainder(step, 100)`."""
    if isinstance(node, ast.Call):
        return called_name(node) in _REMAINDERS and len(node.args) == 2
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)


def _frequency_of_phase(word: str, equal: bool) -> tuple[Frequency, Frequency]:
    """`if phase == "train"`: the other branch evaluates."""
    here: tuple[Frequency, Frequency] = ("always", "always")
    if word in ("cuda", "gpu"):
        here = "always", "seldom"
    elif word == "cpu":
        here = "seldom", "always"
    elif _TRAINING.search(word):
        here = "always", "evaluates"
    elif _EVALUATING.search(word):
        here = "evaluates", "always"
    return here if equal else (here[1], here[0])


def _frequency_of_name(test: ast.Name | ast.Attribute, function: Function, depth: int) -> tuple[Frequency, Frequency]:
    name = own_name(test)
    if isinstance(test, ast.Name) and depth < 3:
        values = function.bindings.get(name, [])
        known = {
            branch_frequency(value, function, depth + 1) for value in values if not isinstance(value, ast.Constant)
        }
        if len(known) == 1 and known != {("always", "always")}:
            return known.pop()
    if _CADENCE.search(name) or _DEBUG.search(name) or _BROKEN.search(name):
        return "seldom", "always"
    if _ON_GPU.search(name):
        return "always", "seldom"
    if _GOES_ON.search(name):
        return "always", "always"
    if name == "training" or _TRAINING.search(name):
        return "always", "evaluates"
    if _EVALUATING.search(name):
        return "evaluates", "always"
    return "always", "always"


def is_evaluation(name: str) -> bool:
    """Is a function, loader or dataset of this name for evaluation? Also in camel case: `ValLoader`."""
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    plain = re.sub(r"(loader|dataloader|dataset|data|set|dl|ds)$", r"_\1", plain, flags=re.I)
    return bool(_EVALUATING.search(plain)) and not _TRAINING.search(plain)


def _is_counter(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_counter(node.left) and isinstance(node.right, ast.Constant)
    return bool(_COUNTER.search(own_name(node)))


def _asks_for_failure(node: ast.AST) -> bool:
    """Does a test ask whether something went wrong: NaN, overflow?"""
    return any(_BROKEN.search(name) for name in all_names_in(node))


def leaves_block(body: Sequence[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Continue | ast.Return | ast.Break)


def _ends_loop(body: Sequence[ast.stmt]) -> bool:
    """Does the body end the run or the loop, so that it happens once?"""
    last = body[-1] if body else None
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return dotted_name(last.value.func) in ("sys.exit", "exit", "quit", "os._exit")
    return isinstance(last, ast.Raise | ast.Break | ast.Return)


def _is_switch_to_eval(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    owner = dotted_name(node.func.value)
    is_helper = re.search(r"teacher|ema|target|vgg|lpips|frozen|clip|vae|text_enc|ref|bn|norm", owner, re.I)
    if is_helper:
        return False  # a part that is never trained: the step goes on
    if node.func.attr == "eval" and not node.args:
        return True
    return node.func.attr == "train" and len(node.args) == 1 and getattr(node.args[0], "value", None) is False


def _switches_to_train(statement: ast.stmt) -> bool:
    return any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "train"
        and getattr(call.args[0] if call.args else None, "value", True) is not False
        for call in walk_scope(statement)
    )

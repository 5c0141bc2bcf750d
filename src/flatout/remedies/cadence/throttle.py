"""A function that you name is called only every so many steps: a viewer, a plot, a callback that costs.

`cadence.throttle = "viewer.network:render=50"` calls `render` of the module `viewer.network` once in 50 optimizer
steps; `"train:Trainer.draw=50"` a method; `"__main__:draw=50"` a function of the script itself; several with a comma.
The first time it is always called. In between, the caller gets what the last call returned.

Of the training class: what the function does besides (counting, drawing random numbers, deciding to stop) is done less
often as well, and only you know whether that matters. Gives up where the name is no function, or one whose result can
be used only once (a generator). The run's record lists what was found: a module that the script never imports is not in
it.
"""

from __future__ import annotations

import ast
import inspect
import sys
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...records.message import message
from ..answers import Answer, Report, no, yes
from ..memo.proposal import module_of
from ..site import Site
from ..traits import Bottleneck, Evidence, Traits
from ..user_code import parse_file
from ..values import Text

if TYPE_CHECKING:
    from ...records.report import Finding, Location


# Where the steps alone have called for it: a viewer still shows something new every few seconds.
_EVERY = 50

ID = "cadence.throttle"
TITLE = "A function of your choice is called every k-th step only"
SAFETY = "training"
TRAITS = Traits(
    Bottleneck.HOST,
    is_switchable=True,
    evidence=Evidence("throttled", message("experiment.function_not_seen")),
)
_ONE = r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*\s*=\s*[1-9]\d*"
VALUE = Text(rf"{_ONE}(\s*,\s*{_ONE})*", '"module:function=50" or "module:Class.method=50"')


def applies(report: Report) -> Answer:
    """Only you can say it; but what the loop calls for nothing it returns, and then waits in, is worth the question."""
    name = find_waiting_call(report)
    if name is None:
        return no(message("throttle.not_known"))
    return yes(f"{name}={_EVERY}", message("throttle.waits"))


def apply(site: Site, value: Any) -> None:
    site.tell(throttled="")
    for item in str(value).split(","):
        module, _, rest = item.strip().partition(":")
        name, _, every = rest.partition("=")
        throttle = partial(_throttle, site, name.strip(), int(every))
        if module == "__main__":
            # Its functions come into being while it runs: they are there when it trains.
            site.each_step(partial(_once_there, throttle, name.strip()))
        else:
            site.after_import(module, throttle)


def _once_there(throttle: Any, name: str, step: int) -> None:
    if step == 1:
        throttle(sys.modules["__main__"])


def _throttle(site: Site, name: str, every: int, module: Any) -> None:
    owner, last = _owner(module, name)
    original = getattr(owner, last, None)
    if not callable(original) or isinstance(original, type):
        site.give_up(message("remedy.no_function", module=module.__name__, function=name))
    elif isinstance(vars(owner).get(last), staticmethod | classmethod):
        site.give_up(message("throttle.static_method", function=name))
    elif _gives_once(original):
        site.give_up(message("throttle.generator", function=name))
    else:
        is_method = isinstance(owner, type)
        site.replace(owner, last, lambda plain: _make(site, every, is_method, plain))
        so_far = str(site.live["throttled"])
        site.tell(throttled=", ".join(filter(None, [so_far, f"{module.__name__}:{name}"])))


def _owner(module: Any, name: str) -> tuple[Any, str]:
    *classes, last = name.split(".")
    owner = module
    for item in classes:
        owner = getattr(owner, item, None)
    return owner, last


def _gives_once(function: Any) -> bool:
    # A context manager is a generator within.
    plain = inspect.unwrap(function)
    return inspect.isgeneratorfunction(plain) or inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain)


def _make(site: Site, every: int, is_method: bool, original: Any) -> Any:
    # By object: each has its own turn. {id: (whose it is, step of the last call, what it returned)}
    last: dict[int, tuple[Callable[[], Any], int, Any]] = {}

    def call(*args: Any, **kwargs: Any) -> Any:
        step, who = site.step, args[0] if is_method and args else None
        before = last.get(id(who))
        if before is not None and before[0]() is who and site.in_force and 0 < step - before[1] < every:
            return before[2]
        result = original(*args, **kwargs)
        last[id(who)] = (_reference(who), step, result)
        return result

    return call


def _reference(who: Any) -> Callable[[], Any]:
    """The number of an object that is gone may come back; one that cannot be referred to weakly stays."""
    try:
        return weakref.ref(who)
    except TypeError:
        return lambda: who


# Which function the training loop calls without using its result and then waits in, by a run's findings. Works on the
# source in flatout's own process; nothing of the user's is imported.

_CODE = "SY305"
_CALLS = "related.calls"
_EMPTY = ast.Module(body=[], type_ignores=[])


def find_waiting_call(report: Report) -> str | None:
    """Its `module:function`; None where there is none, or what it returns may be used."""
    for finding in report.findings:
        if finding.code == _CODE and (name := _function_name(finding, report.run.argv)) is not None:
            return name
    return None


def _function_name(finding: Finding, argv: tuple[str, ...]) -> str | None:
    hops = [(line.location, str(line.words.args["function"])) for line in finding.related if line.words.id == _CALLS]
    if not hops or finding.location is None or not _is_statement(hops[0][0]):
        return None
    name = hops[0][1]
    inside = (hops[1][0] if len(hops) > 1 else finding.location).file
    return f"{module_of(inside, argv)}:{name}" if _is_plain_function(inside, name) else None


def _is_statement(location: Location) -> bool:
    """Whether the line is a call whose result goes nowhere."""
    return any(
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and node.lineno == location.line
        for node in ast.walk(parse_file(location.file) or _EMPTY)
    )


def _is_plain_function(file: str, name: str) -> bool:
    *classes, last = name.split(".")
    body = (parse_file(file) or _EMPTY).body
    for item in classes:
        body = next((node.body for node in body if isinstance(node, ast.ClassDef) and node.name == item), [])
    found = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == last]
    return len(found) == 1 and not found[0].decorator_list

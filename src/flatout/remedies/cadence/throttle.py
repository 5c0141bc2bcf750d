"""A function that you name is called only every so many steps: a viewer, a plot, a callback that costs.

`cadence.throttle = "viewer.network:render=50"` calls `render` of the module `viewer.network` once in 50 optimizer
steps; `"train:Trainer.draw=50"` a method; `"__main__:draw=50"` a function of the script itself; several with a comma.
The first time it is always called. In between, the caller gets what the last call returned.

Of the training class: what the function does besides (counting, drawing random numbers, deciding to stop) is done less
often as well, and only you know whether that matters. Gives up where the name is no function. The run's record lists
what was found: a module that the script never imports is not in it.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from ..answers import Answer, no
from ..values import Text

if TYPE_CHECKING:
    from ...records.report import RunReport
    from ..site import Site

ID = "cadence.throttle"
TITLE = "A function of your choice is called every k-th step only"
SAFETY = "training"
_ONE = r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*\s*=\s*[1-9]\d*"
VALUE = Text(rf"{_ONE}(\s*,\s*{_ONE})*", '"module:function=50" or "module:Class.method=50"')


def applies(report: RunReport) -> Answer:
    return no("only you can say which function may be called less often")


def apply(site: Site, value: Any) -> None:
    site.tell(throttled="")
    for one in str(value).split(","):
        module, _, rest = one.strip().partition(":")
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
        site.give_up(f"{module.__name__} has no function {name!r}")
    elif isinstance(vars(owner).get(last), staticmethod | classmethod):
        site.give_up(f"{name!r} is a static or class method: name the function that calls it")
    else:
        is_method = isinstance(owner, type)
        site.replace(owner, last, lambda plain: _make(site, every, is_method, plain))
        so_far = str(site.live["throttled"])
        site.tell(throttled=", ".join(filter(None, [so_far, f"{module.__name__}:{name}"])))


def _owner(module: Any, name: str) -> tuple[Any, str]:
    *classes, last = name.split(".")
    owner = module
    for one in classes:
        owner = getattr(owner, one, None)
    return owner, last


def _make(site: Site, every: int, is_method: bool, original: Any) -> Any:
    # By object: each has its own turn. {id: (step of the last call, what it returned)}
    last: dict[int, tuple[int, Any]] = {}

    def call(*args: Any, **kwargs: Any) -> Any:
        step, who = site.step, id(args[0]) if is_method and args else 0
        before = last.get(who)
        if before is not None and site.in_force and 0 < step - before[0] < every:
            return before[1]
        result = original(*args, **kwargs)
        last[who] = (step, result)
        return result

    return call

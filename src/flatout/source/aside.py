"""Has the syntax of files checked by another process, while this one goes on.

Most files of a tree have nothing to do with training: of these only syntax errors are wanted, and they are most of the
work of reading a large tree.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence

from flatout.source.module import Module

# Fewer are checked sooner than a process is started.
_WORTH_IT = 100


def checked_aside(modules: Sequence[Module]) -> Callable[[], None]:
    """Begins to parse these modules for their errors; what is given back waits until all are known."""
    if len(modules) < _WORTH_IT or not _may_fork():
        return lambda: _check(modules)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _tell(modules, reading, writing)
    os.close(writing)
    return lambda: _heard(modules, child, reading)


def _may_fork() -> bool:
    return hasattr(os, "fork") and sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1


def _check(modules: Sequence[Module]) -> None:
    for module in modules:
        assert module.tree is not None  # parsed now, so that its error is known
        module.forget()


def _tell(modules: Sequence[Module], reading: int, writing: int) -> None:
    """In the child: it must not come back to what the parent was doing."""
    status = 1
    try:
        os.close(reading)
        _check(modules)
        said = json.dumps([(at, one.error) for at, one in enumerate(modules) if one.error is not None])
        with os.fdopen(writing, "w") as out:
            out.write(said)
        status = 0
    finally:
        os._exit(status)


def _heard(modules: Sequence[Module], child: int, reading: int) -> None:
    with os.fdopen(reading) as said:
        text = said.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        _check(modules)  # it died: nothing is known
        return
    for at, (line, column, words) in json.loads(text):
        modules[at].error = (line, column, words)

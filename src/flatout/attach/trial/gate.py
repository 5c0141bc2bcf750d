"""The gate: a process that was started ahead of time waits here until it is told what to try.

It has run the user's script up to the import of torch and used nothing of it yet. Whatever differs between trials takes
effect later, so a process that waited here is as good as one started for its trial.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import threading

VARIABLE = "FLATOUT_GATE"
HERE, BUSY = b"here", b"busy"
# The first step of any of torch's optimizers imports it, which takes as long as torch itself.
COMPILER = "torch._dynamo"


def wait() -> None:
    """Returns with the environment of the trial; does not return if there will be none."""
    named = os.environ.pop(VARIABLE, None)
    if named is None:
        return
    starter, orders, answers, imports_compiler = map(int, named.split(":"))
    if os.getppid() != starter:
        return  # not the process that was started: one of its own
    if imports_compiler:
        try:
            importlib.import_module(COMPILER)
        except Exception:
            pass  # the script will meet the same, or do without
    # One with threads or children would go on working while another trial is timed.
    is_busy = threading.active_count() > 1 or bool(multiprocessing.active_children())
    os.write(answers, BUSY if is_busy else HERE)
    os.close(answers)
    with open(orders, encoding="utf-8") as told:
        words = told.read()
    if not words:
        os._exit(0)  # whoever started it has no use for it, or is gone
    for name, value in json.loads(words).items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value

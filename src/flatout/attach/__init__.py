"""What enters the user's process. Imports the standard library and the user's own torch, nothing else of flatout.

Loaded by file location as `_flatout_attach`, so that flatout may live in another environment than the script.
Nothing below may raise into a training run: every hook guards its own part, and a failing one switches itself off.
"""

from __future__ import annotations

import os
import time

# The first moment of ours in this process, for the worker's start-up time.
STARTED_NS = time.perf_counter_ns()


def wait_for_torch() -> None:
    """Arrange for `install` to run as soon as the script has imported torch."""
    from .imports import after_import

    if os.environ.get("FLATOUT_REMEDIES"):
        # Before anything else: what a loader's worker is sent may be of a class of ours.
        from .remedies import make_importable

        make_importable()
    if os.environ.get("FLATOUT_TRIAL"):
        from .trial import run as trial

        trial.begin_sandbox(os.environ)
    after_import("torch", lambda module: _torch_came())


def _torch_came() -> None:
    global STARTED_NS
    if os.environ.get("FLATOUT_GATE"):
        from .trial import gate

        gate.wait()
        STARTED_NS = time.perf_counter_ns()
    install()


def install() -> bool:
    """Start watching this process; a second call does nothing. Returns whether it is being watched."""
    from . import session

    watched = session.install(os.environ)
    if os.environ.get("FLATOUT_REMEDIES"):
        from . import remedies

        remedies.begin(os.environ["FLATOUT_REMEDIES"])
    if os.environ.get("FLATOUT_TRIAL"):
        from .trial import run as trial

        trial.begin(os.environ)
    return watched


def detach() -> None:
    """Put back every original that was replaced, and stop recording."""
    from . import remedies, session
    from .trial import run as trial

    trial.end()
    remedies.end()
    session.detach()

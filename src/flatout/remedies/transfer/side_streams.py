"""Notices when the script works with CUDA streams of its own.

Then an order between host and device that nobody wrote down may count: what a blocking call has brought about for all
streams, a queue brings about for its own only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from ..site import Site

_OURS = ("flatout", "_flatout", "_flatout_attach")


def when_used(site: Site, call: Callable[[], object]) -> None:
    """Call it each time the script enters a stream, or makes one the current one."""

    def make(original: Any) -> Any:
        def enter(*args: Any, **kwargs: Any) -> Any:
            if site.in_force and is_of_script(sys._getframe(1)):
                call()
            return original(*args, **kwargs)

        return enter

    cuda = site.torch.cuda
    site.replace(cuda.StreamContext, "__enter__", make)
    site.replace(cuda, "set_stream", make)


def is_of_script(frame: FrameType | None) -> bool:
    """Whether the script made this call, or a library it uses: what torch and we do by ourselves keeps its own order.

    Patches may be wrapped around each other: a frame of theirs says nothing, the one that called them does.
    """
    while frame is not None:
        root, _, rest = str(frame.f_globals.get("__name__", "")).partition(".")
        if root not in _OURS:
            return root != "torch"
        if rest.startswith("feed") or rest.endswith("deferred_calls"):
            return False
        frame = frame.f_back
    return False

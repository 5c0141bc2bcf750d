"""Where in the user's code something of ours was called from."""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any

_FLATOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OURS = tuple(os.path.join(_FLATOUT, name) + os.sep for name in ("attach", "remedies", "feed"))


def caller(torch: Any) -> str:
    """`file.py:12` of the innermost line that is neither torch's nor ours."""
    frame = user_frame(torch)
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def user_frame(torch: Any) -> FrameType:
    """The innermost frame that is neither torch's nor ours."""
    others = (*OURS, os.path.dirname(os.path.abspath(torch.__file__)) + os.sep)
    frame = sys._getframe(1)
    while frame.f_back is not None and os.path.abspath(frame.f_code.co_filename).startswith(others):
        frame = frame.f_back
    return frame

"""Is an autocast off because of a switch of the script's, or is it meant to be off?

`torch.autocast("cuda", enabled=config.amp)` is a place that was written for autocast, and a switch nobody has turned.
`enabled=False` in so many words keeps something in float32 on purpose. The call that makes the context tells.
"""

from __future__ import annotations

import ast
import linecache
from types import FrameType
from typing import Any

from ..places import user_frame

_LIBRARIES = ("site-packages", "dist-packages")


def is_by_switch(torch: Any, context: Any) -> bool:
    """Asked while the context is being made. False where it cannot be told, and in code that is not the user's."""
    frame = user_frame(torch)
    if any(name in frame.f_code.co_filename for name in _LIBRARIES):
        return False
    try:
        call = _call(frame)
    except Exception:  # this is the script's own call: whatever its source is like, the call goes on
        return False
    if call is None:
        return False
    named = next((one.value for one in call.keywords if one.arg == "enabled"), None)
    if named is not None:
        return not isinstance(named, ast.Constant)
    if any(one.arg is None for one in call.keywords) or any(isinstance(one, ast.Starred) for one in call.args):
        return False
    # torch.autocast(device, dtype, enabled), but torch.cuda.amp.autocast(enabled).
    place = 2 if type(context) is torch.amp.autocast_mode.autocast else 0
    return len(call.args) > place and not isinstance(call.args[place], ast.Constant)


def _call(frame: FrameType) -> ast.Call | None:
    """The call that this frame is in the middle of, as it is written."""
    place = next(
        (found for number, found in enumerate(frame.f_code.co_positions()) if 2 * number == frame.f_lasti), None
    )
    if place is None or None in place:
        return None
    first, last, begin, end = (int(number or 0) for number in place)
    lines = [line.encode() for line in linecache.getlines(frame.f_code.co_filename, frame.f_globals)[first - 1 : last]]
    if not lines:
        return None
    # Cut off the end first: it may be in the same line as the beginning.
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    expression = ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    return expression if isinstance(expression, ast.Call) else None

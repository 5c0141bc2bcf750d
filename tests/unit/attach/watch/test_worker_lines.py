"""Which frame of a stack a worker's time is put down to."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

from flatout.attach.watch.lines import find_frame_within


def root(call: Callable[[], FrameType | None]) -> FrameType | None:
    return call()


def of_the_user() -> FrameType | None:
    return find_frame_within(sys._getframe(), root.__code__)


def test_the_innermost_frame_of_the_user_below_the_root_is_found() -> None:
    frame = root(of_the_user)

    assert frame is not None and frame.f_code is of_the_user.__code__


def test_what_called_the_root_is_never_blamed() -> None:
    # A forked worker's stack goes on with the frames of the script that forked it.
    frame = root(lambda: find_frame_within(sys._getframe(1), root.__code__))

    assert frame is None


def test_outside_of_the_root_there_is_nothing() -> None:
    assert of_the_user() is None
    assert find_frame_within(None, root.__code__) is None

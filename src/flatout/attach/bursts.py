"""Small copies from one line in quick succession: the first are timed, then ever fewer; the others are only counted.

A batch that goes to the device in hundreds of pieces would be slowed down by timing each. Small copies from one line
cost alike, so those in between are taken to have lasted as long as the next that is timed, but no longer than the time
there was for them. Their number and their bytes are exact. Any other event (a wait for the device, a backward pass, the
end of a step) ends a burst, as the next copy may have to wait for what was launched since: the first are timed again.
"""

from __future__ import annotations

import random
from types import CodeType, FrameType
from typing import Any

from .sites import Site, Sites, is_users
from .tracer import Tracer

# So many are timed at first, then one among as many as a part of them. What is let pass at the end of a burst is
# missing in the step's phases, not in the totals of its line: it has to stay a small part.
_ALL_TIMED, _PART, _MOST_PASSED = 24, 0.2, 40
# A copy of so many costs by its size, and is always timed.
LARGE_BYTES = 64 << 10


class Burst:
    """Copies from one instruction of one function. While `left` is above 0 they are only counted."""

    __slots__ = (
        "bytes",
        "code",
        "copies",
        "copy_s",
        "events",
        "is_mixed",
        "left",
        "let_pass",
        "site",
        "steps",
        "until",
    )

    def __init__(self, code: CodeType) -> None:
        # Kept alive, so that no other function's code comes to lie at its address.
        self.code = code
        self.site: Site | None = None
        self.left = self.let_pass = self.bytes = self.copies = 0
        self.is_mixed = False
        # As they were at the last copy that was timed.
        self.events = self.steps = -1
        self.copy_s = self.until = 0.0

    def time_all(self) -> None:
        """A call here turned out to be no copy, as one of those that were only counted may have been."""
        self.is_mixed = True
        self.left = self.let_pass = self.bytes = 0


class Bursts:
    """All of this process."""

    def __init__(self, tracer: Tracer, sites: Sites) -> None:
        self._tracer = tracer
        self._sites = sites
        # By the address of the caller's code plus its instruction; the code itself would be hashed anew each time.
        self.at: dict[int, Burst] = {}
        self._draw = random.Random(20261).random  # our own: the script's random state is not ours to move

    def counts(self, tensor: Any, frame: FrameType) -> bool:
        """Whether a copy of this tensor, made there, needs only to be counted. Then it has been."""
        burst = self.at.get(id(frame.f_code) + frame.f_lasti)
        tracer = self._tracer
        if burst is None or not burst.left or burst.events != len(tracer.codes) or burst.steps != tracer.ended:
            return False
        try:
            size = tensor.nbytes
        except RuntimeError:
            return False  # a sparse one has no such size
        if size >= LARGE_BYTES or burst.code is not frame.f_code:
            return False
        burst.left -= 1
        burst.bytes += size
        return True

    def timed(self, begun: float, now: float, size: int, frame: FrameType) -> Site:
        """A copy was timed. Writes it down, with those that were only counted since the last; gives its site."""
        burst = self.at.get(id(frame.f_code) + frame.f_lasti)
        if burst is None or burst.code is not frame.f_code:
            burst = self._begin(frame)
        site = burst.site or self._sites.at("h2d", frame)
        tracer, copy_s = self._tracer, now - begun
        events = len(tracer.codes)
        goes_on = burst.steps == tracer.ended and burst.events == events
        passed, passed_s = burst.let_pass - burst.left, 0.0
        if passed:
            # After a break this copy may have had to wait, but not those before it: the last one speaks for them.
            passed_s = min(passed * copy_s, begun - burst.until) if goes_on else passed * burst.copy_s
            site.add_alike(passed, passed_s, burst.bytes)
            burst.bytes = 0
        if not tracer.is_resting:
            tracer.copied(begun, now, passed, passed_s if goes_on else 0.0)
            events = len(tracer.codes)
        site.add(copy_s)
        site.bytes += size
        burst.copies = burst.copies + 1 + passed if goes_on else 1
        burst.events, burst.steps = events, tracer.ended
        burst.left = burst.let_pass = 0
        # In a window for hidden waits every call is watched.
        if burst.copies >= _ALL_TIMED and not burst.is_mixed and not tracer.every_step:
            burst.copy_s, burst.until = copy_s, now
            # By chance, as a step may send several things in turn from one line.
            burst.left = burst.let_pass = 1 + int(self._draw() * min(_MOST_PASSED, _PART * burst.copies))
        return site

    def _begin(self, frame: FrameType) -> Burst:
        code = frame.f_code
        burst = self.at[id(code) + frame.f_lasti] = Burst(code)
        if is_users(code.co_filename):
            # A library's line may be reached from many of the user's: there it is asked each time.
            burst.site = self._sites.at("h2d", frame)
        return burst

    def forget(self) -> None:
        """Start afresh, as in a forked child."""
        self.at.clear()

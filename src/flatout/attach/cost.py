"""What our own boundaries cost the training thread, so that every run can say what watching it cost.

They cannot time themselves without becoming dearer. What noting an event costs in a tight loop is measured at the
start; between training steps it runs with cold caches and costs a multiple of that. The multiples were fitted to
measured differences between watched and bare runs (`benchmarks/overhead.py` checks the result on every machine).
"""

from __future__ import annotations

from .tracer import clock

_ROUNDS = 200
_COLD_EVENT = 25  # one event with its share of the patch that notes it
_COLD_GLOSS = 55  # the patches of a whole step that is only counted
_WARM_COPY = 16  # one of many copies to the device; they keep our code in the caches
_COLD_READING = 1.5  # reading the events also pushes the script's own data out of the caches


class OwnCost:
    """Seconds per event, per step that is glossed over, per further copy in one event, and for reading events."""

    def __init__(self) -> None:
        warm_s = min(_time_events() for _ in range(3))
        self._event_s = _COLD_EVENT * warm_s
        self._gloss_s = _COLD_GLOSS * warm_s
        self._copy_s = _WARM_COPY * warm_s

    def of(self, events: int, glossed_over: int, reading_s: float, more_copies: int = 0) -> float:
        noted_s = events * self._event_s + glossed_over * self._gloss_s + more_copies * self._copy_s
        return noted_s + _COLD_READING * reading_s


class Owed:
    """Seconds that watching has cost, and that no record of steps tells yet.

    They are told of the steps that follow, at the rate of those that were read last, but never more than there are:
    after a reading of one step (a window for hidden waits) dozens may follow that are only counted.
    """

    def __init__(self) -> None:
        self._left_s = 0.0
        self._read = 0

    def by_steps(self, read: int) -> None:
        """So many steps were read: the rate that is told from now on is theirs."""
        self._read = read

    def pay(self, rate_s: float, steps: int) -> float:
        """What a record of so many steps should tell; `rate_s` a step."""
        # Only now is all that the reading led to in the rate.
        self._left_s += rate_s * self._read
        self._read = 0
        paid_s = min(rate_s * steps, self._left_s)
        self._left_s -= paid_s
        return paid_s


def _time_events() -> float:
    codes: list[int] = []
    moments: list[float] = []
    log, at = codes.append, moments.append
    begun = clock()
    for _ in range(_ROUNDS):
        log(1)
        at(clock())
    return (clock() - begun) / _ROUNDS

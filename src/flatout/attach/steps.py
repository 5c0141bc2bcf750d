"""Of a training's steps, how many are traced in full, what the others are taken to be like, and what tracing costs."""

from __future__ import annotations

from .tracer import clock
from .wire import BACKWARD, DATA, FORWARD, H2D, OPTIMIZER, OTHER

# How many steps are traced in full: of those so short, or so many, that tracing would show, only some.

_STEPS_APART = 1024  # at least this many steps have a record of their own
_SHORT_STEP_S = 0.001
_LOOKED_AT_ONE_IN = 16
# On a device a step has more boundaries, and waits and samples of its own: steps are looked at as often as this part of
# their time allows (but one in so many always), after so many that all are.
_SHORT_ON_DEVICE_S = 0.02
_BUDGET = 0.004
_ON_DEVICE_ONE_IN = 64
_LOOKED_AT_FIRST = 128
# From then on a record holds twice as many steps for each doubling: a week of 2 ms steps stays under a gigabyte.
RECORDS_PER_LEVEL = 1 << 19


def steps_to_rest(index: int, step_s: float, looking_s: float, on_device: bool) -> int:
    """Steps to count only, after each that is looked at; `looking_s` is what looking at one costs."""
    if on_device:
        if index < _LOOKED_AT_FIRST or step_s >= _SHORT_ON_DEVICE_S:
            return 0
        return min(_ON_DEVICE_ONE_IN - 1, int(looking_s / (_BUDGET * max(step_s, 1e-9))))
    return _LOOKED_AT_ONE_IN - 1 if index >= _STEPS_APART and step_s < _SHORT_STEP_S else 0


def steps_per_record(index: int, step_s: float, on_device: bool) -> int:
    if index < _STEPS_APART:
        return 1
    share = 1 << max(0, (index // RECORDS_PER_LEVEL).bit_length() - 1)
    return share * (_LOOKED_AT_ONE_IN if step_s < _SHORT_STEP_S and not on_device else 1)


# What steps that are only counted are taken to be like.

_STEP_PHASES = (DATA, H2D, FORWARD, BACKWARD, OPTIMIZER, OTHER)
# Time beyond this multiple of a typical step is something else the script did, and is not shared out like a step.
_LONGEST_TYPICAL = 1.5


class TypicalStep:
    """The last step that was looked at closely: its length, its phases, its batch."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._shares = [0.0] * len(_STEP_PHASES)
        self.samples = self.copies = 0

    def learn(self, acc: list[float], then: list[float], samples: int, copies: int) -> None:
        """`acc` less `then` is what one step took, phase by phase."""
        took = [acc[phase] - then[phase] for phase in _STEP_PHASES]
        self._seconds = sum(took)
        self._shares = [seconds / self._seconds for seconds in took] if self._seconds > 0 else self._shares
        self.samples = samples
        self.copies = copies

    def share_out(self, seconds: float, steps: int, acc: list[float]) -> None:
        """Book the time of so many steps as if each had been this one."""
        alike = min(seconds, _LONGEST_TYPICAL * steps * self._seconds)
        for phase, share in zip(_STEP_PHASES, self._shares, strict=True):
            acc[phase] += alike * share
        acc[OTHER] += seconds - alike


# What our own hooks cost the training thread, so that every run can say what watching it cost.
#
# They cannot time themselves without becoming slower. What noting an event costs in a tight loop is measured at the
# start; between training steps it runs with cold caches and costs a multiple of that. The multiples were fitted to
# measured differences between watched and bare runs (`benchmarks/overhead.py` checks the result on every machine).

_ROUNDS = 200
_COLD_EVENT = 25  # one event with its share of the patch that notes it
_COLD_GLOSS = 55  # the patches of a whole step that is only counted
_WARM_COPY = 16  # one of many copies to the device; they keep our code in the caches
_COLD_READING = 1.5  # reading the events also pushes the script's own data out of the caches


class OwnCost:
    """Seconds per event, per step that is glossed over, per further copy in one event, and for reading events."""

    def __init__(self) -> None:
        warm_s = time_of_event()
        self._event_s = _COLD_EVENT * warm_s
        self._gloss_s = _COLD_GLOSS * warm_s
        self._copy_s = _WARM_COPY * warm_s

    def of(self, events: int, glossed_over: int, reading_s: float, more_copies: int = 0) -> float:
        noted_s = events * self._event_s + glossed_over * self._gloss_s + more_copies * self._copy_s
        return noted_s + _COLD_READING * reading_s


class UnreportedCost:
    """Seconds that watching has cost, and that no record of steps tells yet.

    They are booked on the steps that follow, at the rate of those that were read last, but never more than there are:
    after a reading of one step (a window for hidden waits) dozens may follow that are only counted.
    """

    def __init__(self) -> None:
        self._left_s = 0.0
        self._read = 0

    def by_steps(self, read: int) -> None:
        """That many steps were read: the rate from now on is theirs."""
        self._read = read

    def pay(self, rate_s: float, steps: int) -> float:
        """The seconds to book on a record of that many steps; `rate_s` per step."""
        # Only now does the rate hold all that the reading led to.
        self._left_s += rate_s * self._read
        self._read = 0
        paid_s = min(rate_s * steps, self._left_s)
        self._left_s -= paid_s
        return paid_s


def time_of_event() -> float:
    """Seconds that noting an event takes in a tight loop: a measure of this machine's speed at such things."""
    return min(_time_events() for _ in range(3))


def _time_events() -> float:
    codes: list[int] = []
    moments: list[float] = []
    log, at = codes.append, moments.append
    begun = clock()
    for _ in range(_ROUNDS):
        log(1)
        at(clock())
    return (clock() - begun) / _ROUNDS

"""Makes the trials that a strategy asks for, keeps them, and ends when the strategy, the time or the user does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from flatout.records.trial import Trial
from flatout.records.tune import Ask, Point
from flatout.tune.fits import Fits
from flatout.tune.halving import Strategy
from flatout.tune.journal import Journal
from flatout.tune.measuring import point
from flatout.tune.space import key

Measure = Callable[[Ask], Trial]
# Makes several trials; each comes when it is done, with its number. The order is free.
Spread = Callable[[Measure, Sequence[Ask]], Iterator[tuple[int, Trial]]]


def one_by_one(measure: Measure, asks: Sequence[Ask]) -> Iterator[tuple[int, Trial]]:
    for number, ask in enumerate(asks):
        yield number, measure(ask)


class OutOfTime(Exception):
    """The budget is spent."""


class Search:
    """`now_s` is a clock, `until_s` its reading at which no further trial begins."""

    def __init__(
        self,
        measure: Measure,
        journal: Journal,
        fits: Fits,
        spread: Spread = one_by_one,
        tell: Callable[[Point, bool], None] = lambda point, is_new: None,
        clock: Callable[[], float] = lambda: 0.0,
        until_s: float = float("inf"),
        refusal: Callable[[Ask], str] = lambda ask: "",
    ) -> None:
        self.measure = measure
        self._journal = journal
        self._fits = fits
        self._spread = spread
        self._tell = tell
        self._clock = clock
        self._until_s = until_s
        self._refusal = refusal
        # All that was seen, in order.
        self.points: list[Point] = []
        self.made = 0

    def run(self, strategy: Strategy) -> None:
        """To its end. Raises OutOfTime; what was found until then is in `points`."""
        try:
            asks = next(strategy)
            while True:
                asks = strategy.send(self.ask(asks))
        except StopIteration:
            pass
        finally:
            strategy.close()

    def ask(self, asks: Sequence[Ask]) -> list[Point]:
        """Their points, in the same order. What the trials so far rule out is not tried."""
        found: dict[int, Point] = {}
        open_ones = list(enumerate(asks))
        while open_ones:
            # Trials that were made before come first, in one go: they may rule others out.
            number, ask = open_ones[0]
            settled = self._settled(ask)
            if settled is not None:
                open_ones.pop(0)
                found[number] = settled
                continue
            batch = self._batch(open_ones)
            for place, trial in self._tried([ask for _, ask in batch]):
                number, ask = batch[place]
                found[number] = self._add(ask, trial, is_new=True)
            done = {number for number, _ in batch}
            open_ones = [one for one in open_ones if one[0] not in done]
        return [found[number] for number in range(len(asks))]

    def _batch(self, open_ones: Sequence[tuple[int, Ask]]) -> list[tuple[int, Ask]]:
        """One by one where trials may rule others out, else all that need a trial."""
        if self._spread is one_by_one:
            return [open_ones[0]]
        return [one for one in open_ones if not self._spared(one[1]) and self._journal.find(one[1]) is None]

    def _settled(self, ask: Ask) -> Point | None:
        """Without a trial: refused, ruled out, or made before."""
        if words := self._spared(ask):
            return self._note(Point(dict(ask.setting), ask.steps, ask.repeat, why=words, tried=False), is_new=True)
        trial = self._journal.find(ask)
        return None if trial is None else self._add(ask, trial, is_new=False)

    def _spared(self, ask: Ask) -> str:
        return self._refusal(ask) or self._fits.obstacle(ask.setting)

    def _tried(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Trial]]:
        if self._clock() >= self._until_s:
            raise OutOfTime
        for place, trial in self._spread(self.measure, asks):
            self._journal.add(asks[place], trial)
            self.made += 1
            yield place, trial

    def _add(self, ask: Ask, trial: Trial, is_new: bool) -> Point:
        return self._note(point(ask, trial), is_new)

    def _note(self, seen: Point, is_new: bool) -> Point:
        self._fits.learn(seen)
        self.points.append(seen)
        self._tell(seen, is_new)
        return seen


def longest(points: Sequence[Point]) -> list[Point]:
    """One a setting: its longest trial, and of several of that length their mean rate."""
    by_setting: dict[str, list[Point]] = {}
    for one in points:
        by_setting.setdefault(key(one.setting), []).append(one)
    return [_joined(several) for several in by_setting.values()]


def finalists(points: Sequence[Point], steps: int) -> tuple[list[Point], bool]:
    """Those to choose from, and whether they are rough: where fewer than two have `steps`, shorter ones have to do.

    The script as it is stands among them in any case. Its long trial comes last, and the search may have ended before.
    """
    usable = [point for point in points if point.is_usable]
    full = [point for point in usable if point.steps == steps]
    if len(full) < 2 and any(point.setting for point in usable):
        return usable, True
    return [*full, *(point for point in usable if not point.setting and point not in full)], False


def _joined(points: Sequence[Point]) -> Point:
    usable = [one for one in points if one.is_usable]
    if not usable:
        return points[-1]
    steps = max(one.steps for one in usable)
    long = {one.repeat: one for one in usable if one.steps == steps}
    # A setting that failed once at its full length cannot be relied on.
    failed = next((one for one in points if one.why and one.tried and one.steps >= steps), None)
    if failed is not None:
        return failed
    return replace(
        long[min(long)],
        samples_per_s=_mean([one.samples_per_s for one in long.values()]),
        steps_per_s=_mean([one.steps_per_s for one in long.values()]),
        memory_bytes=max((one.memory_bytes for one in long.values() if one.memory_bytes is not None), default=None),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None

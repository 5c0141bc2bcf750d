"""Trials that others disturb: waited for, made again, not counted, or counted with wider intervals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flatout.experiment import runner
from flatout.experiment.calm import CalmWaiter, describe_disturbed, measure_other_cores, spare_cores
from flatout.experiment.request import Request
from flatout.experiment.runner import TrialRunner
from flatout.experiment.statistics.intervals import measure_gain
from flatout.experiment.statistics.rates import keep_measured
from flatout.records.machine import MachineUse, NotRunning
from flatout.records.message import Message, message
from flatout.records.trial import Trial
from flatout.words import english

_SENTENCE = message("machine.steal", who=message("machine.training"), share=0.3)


def busy(lost: float = 0.3, wanted: float = 2.0) -> MachineUse:
    part = NotRunning(lost, by_others=lost)
    return MachineUse(2.0, 1.0, 1.0, wanted, training=part, disturbed=lost >= 0.05, sentence=_SENTENCE)


def trial(step_s: float, lost: float = 0.0, run: str = "") -> Trial:
    steps = tuple(step_s * (1 + 0.01 * (place % 3)) for place in range(60))
    return Trial("as it is", {}, "stopped", step_s=steps, run=run, machine=busy(lost))


class Waiting:
    """A waiter over others that take so many cores at each look, and what it told."""

    def __init__(self, *other_cores: float | None) -> None:
        self.now_s = 0.0
        self.told: list[Message] = []
        self._looks = list(other_cores)
        self.waiter = CalmWaiter(self.told.append, 600.0, self._look, lambda: self.now_s)

    def waits(self, lost: float = 0.3, wall_s: float = 1.0) -> bool:
        return self.waiter.wait_for(replace(trial(0.1, lost), wall_s=wall_s))

    def _look(self) -> float | None:
        self.now_s += 0.5
        return self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]


def test_it_waits_until_others_leave_what_the_run_wants() -> None:
    waiting = Waiting(1.5, 1.0, 0.05)

    assert waiting.waits()
    assert waiting.now_s == 1.5
    assert [fact.id for fact in waiting.told] == ["machine.waiting", "machine.trial_again"]
    assert english(_SENTENCE) in english(waiting.told[0])


def test_a_machine_that_stays_busy_is_given_up() -> None:
    waiting = Waiting(1.5)

    assert [waiting.waits() for _ in range(5)] == [False] * 5
    assert waiting.now_s <= 13.0, "two waits of six seconds"
    assert waiting.told[-1].id == "machine.stays_busy"


def test_all_waits_of_a_search_are_bounded() -> None:
    waiting = Waiting(*[1.5] * 10, 0.0)
    for _ in range(20):
        waiting.waits()
        waiting._looks = [*[1.5] * 10, 0.0]

    assert waiting.now_s <= 31.0, "a twentieth of the time there is"


def test_a_quiet_trial_is_not_waited_for_and_no_more_time_than_a_part_goes_into_trials_made_again() -> None:
    waiting = Waiting(0.0)

    assert not waiting.waits(lost=0.0) and not waiting.told
    assert [waiting.waits(wall_s=50.0) for _ in range(4)] == [True, True, False, False]


def test_where_others_cannot_be_measured_nothing_is_waited_for() -> None:
    assert not Waiting(None).waits()


def test_what_others_may_have() -> None:
    assert spare_cores(MachineUse(16.0, wanted_cores=4.0)) == 12.0
    assert spare_cores(MachineUse(2.0, wanted_cores=5.0)) == pytest.approx(0.1)
    assert spare_cores(MachineUse(2.0)) == pytest.approx(0.1)
    others = measure_other_cores(0.05)
    assert others is not None and others >= 0.0


def test_a_disturbed_trial_is_made_again_when_the_machine_is_quiet(tmp_path: Path, monkeypatch) -> None:
    lost = [0.4, 0.0]

    def make(self: TrialRunner, request: Request, place: Path) -> Trial:
        place.mkdir(parents=True)
        return trial(0.1, lost.pop(0), str(place))

    monkeypatch.setattr(runner.TrialRunner, "_made", make)
    waiting = Waiting(0.0)

    made = TrialRunner(tmp_path, calm=waiting.waiter)(Request(("train.py",), "as it is"))

    assert made.made_again and not made.is_disturbed and not lost
    assert english(describe_disturbed([made, made])).startswith("2 trials were disturbed by others and made again")


@pytest.mark.parametrize(("looks", "second"), [((1.9,), None), ((0.0,), 0.6)])
def test_the_first_stays_where_the_machine_does_not_get_better(tmp_path, monkeypatch, looks, second) -> None:
    lost = [0.4] if second is None else [0.4, second]

    def make(self: TrialRunner, request: Request, place: Path) -> Trial:
        place.mkdir(parents=True)
        (place / "which").write_text(str(lost[0]))
        return trial(0.1, lost.pop(0), str(place))

    monkeypatch.setattr(runner.TrialRunner, "_made", make)

    made = TrialRunner(tmp_path, calm=Waiting(*looks).waiter)(Request(("train.py",), "as it is"))

    assert made.lost_share == 0.4 and not made.made_again
    assert (Path(made.run) / "which").read_text() == "0.4"
    assert "1 of 1 trials were disturbed" in english(describe_disturbed([made]))


def test_nothing_is_said_of_quiet_trials() -> None:
    assert describe_disturbed([trial(0.1), Trial("look", {}, "stopped")]) is None


def test_disturbed_trials_do_not_count_beside_others() -> None:
    calm, disturbed = trial(0.1), trial(0.2, 0.4)

    assert keep_measured([disturbed, calm]) == [calm]
    assert keep_measured([disturbed]) == [disturbed]


def test_a_gain_whose_arms_were_not_disturbed_alike_is_not_decided_by_luck() -> None:
    calm = measure_gain([trial(0.11), trial(0.11)], [trial(0.1), trial(0.1)])
    alike = measure_gain([trial(0.11, 0.3), trial(0.11, 0.3)], [trial(0.1, 0.3), trial(0.1, 0.3)])
    # What only the baseline lost time in may be no gain at all, and the other way round a larger one.
    before = measure_gain([trial(0.11, 0.3), trial(0.11, 0.3)], [trial(0.1), trial(0.1)])
    after = measure_gain([trial(0.11), trial(0.11)], [trial(0.1, 0.3), trial(0.1, 0.3)])
    assert calm is not None and alike is not None and before is not None and after is not None

    assert calm.low > 1.05 and alike.low == pytest.approx(calm.low, rel=0.01)
    assert before.mid == after.mid == pytest.approx(calm.mid)
    assert before.low < 0.85 and before.high == pytest.approx(calm.high, rel=0.02)
    assert after.high > 1.4 and after.low == pytest.approx(calm.low, rel=0.02)

"""A search that was killed goes on, failures are results, and the budget ends it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from flatout.errors import FlatoutError
from flatout.experiment.tuning.picks import pick_preset
from flatout.experiment.tuning.search import (
    FILE,
    Journal,
    Measure,
    MemoryModel,
    OutOfTime,
    SettingSearch,
    finalists,
    longest,
)
from flatout.experiment.tuning.strategies import all_settings, choose_method, halve
from flatout.records.message import verbatim
from flatout.records.report import RemedyState
from flatout.records.trial import Trial
from flatout.records.tune import Ask, Point
from flatout.words import english
from tests.unit.experiment.tuning.simulated import LENGTHS, SPEED, Formula, knob, search

KNOBS = (knob("workers", 0, 2, 4), knob("batch", 4, 8, 16))


class Killed(BaseException):
    pass


def _formula() -> Formula:
    return Formula(lambda setting: 1.0 + setting["workers"] * setting["batch"])


def test_all_get_a_short_trial_and_the_best_third_a_long_one(tmp_path: Path) -> None:
    formula = _formula()

    points = search(tmp_path, formula, halve(list(all_settings(KNOBS)), LENGTHS, SPEED))

    long = [ask.setting for ask in formula.asked if ask.steps == LENGTHS.long]
    assert LENGTHS.long == 3 * LENGTHS.short
    assert len(formula.asked) == 9 + 3 and len(long) == 3
    assert long[0] == {"workers": 4, "batch": 16}
    assert max(longest(points), key=SPEED.score).setting == {"workers": 4, "batch": 16}


@pytest.mark.parametrize("after", [1, 5, 10])
def test_a_killed_search_goes_on_where_it_was(tmp_path: Path, after: int) -> None:
    formula = _formula()

    def until_killed(ask: Ask) -> Trial:
        if len(formula.asked) == after:
            raise Killed
        return formula(ask)

    with pytest.raises(Killed):
        search(tmp_path, until_killed, halve(list(all_settings(KNOBS)), LENGTHS, SPEED))
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"setting": {"workers": 0')  # what it was writing just then

    rest = _formula()
    points = search(tmp_path, rest, halve(list(all_settings(KNOBS)), LENGTHS, SPEED))

    whole = _formula()
    expected = search(tmp_path / "whole", whole, halve(list(all_settings(KNOBS)), LENGTHS, SPEED))
    assert formula.asked + rest.asked == whole.asked
    assert [(point.setting, point.samples_per_s) for point in points] == [
        (point.setting, point.samples_per_s) for point in expected
    ]


def test_a_damaged_line_costs_one_trial(tmp_path: Path) -> None:
    search(tmp_path, _formula(), halve(list(all_settings(KNOBS)), LENGTHS, SPEED))
    lines = (tmp_path / FILE).read_bytes().splitlines(keepends=True)
    lines[3] = b"\x00\xff nonsense\n"
    (tmp_path / FILE).write_bytes(b"".join(lines))

    again = _formula()
    search(tmp_path, again, halve(list(all_settings(KNOBS)), LENGTHS, SPEED))

    assert len(again.asked) == 1


def test_a_trial_comes_back_whole(tmp_path: Path) -> None:
    state = RemedyState("loader.workers", "lossless", 4, "applied", live={"a:1": "0 → 4"})
    trial = Trial(
        "x", {"a": 1}, "stopped", step_s=(0.1,), samples=(1.0,), losses=(None, 0.5), states=(state,), metric=3.5
    )
    with Journal(tmp_path) as journal:
        journal.add(Ask({"a": "[1,2]"}, 5, 1), trial)

    with Journal(tmp_path) as journal:
        assert journal.find(Ask({"a": "[1,2]"}, 5, 1)) == trial
        assert journal.find(Ask({"a": "[1,2]"}, 5, 0)) is None


def test_a_trial_that_ran_out_of_time_is_made_again_where_it_may_take_longer(tmp_path: Path) -> None:
    ask, trial = Ask({"a": 1}, 5), Trial("x", {}, "out of time", wall_s=60.1)
    with Journal(tmp_path, limit_s=60.0) as journal:
        journal.add(ask, trial)

    with Journal(tmp_path, limit_s=60.0) as journal:
        assert journal.find(ask) == trial
    with Journal(tmp_path, limit_s=600.0) as journal:
        assert journal.find(ask) is None


def test_a_fresh_search_knows_nothing(tmp_path: Path) -> None:
    search(tmp_path, _formula(), halve(list(all_settings(KNOBS)), LENGTHS, SPEED))

    with Journal(tmp_path) as journal:
        before = len(journal)
        journal.clear()
        journal.add(Ask({"workers": 9}, 5), Trial("x", {}, "stopped"))

    with Journal(tmp_path) as journal:
        assert (before, len(journal)) == (12, 1)


def test_two_searches_do_not_write_to_one_file(tmp_path: Path) -> None:
    with Journal(tmp_path), pytest.raises(FlatoutError, match="another search"), Journal(tmp_path):
        pass


def test_no_trial_begins_after_the_budget(tmp_path: Path) -> None:
    formula = _formula()
    with Journal(tmp_path) as journal:
        running = SettingSearch(
            formula, journal, MemoryModel((), None), clock=lambda: float(len(formula.asked)), until_s=4
        )
        with pytest.raises(OutOfTime):
            running.run(halve(list(all_settings(KNOBS)), LENGTHS, SPEED))

    assert len(formula.asked) == 4 and len(running.points) == 4


def test_several_at_once_come_in_any_order(tmp_path: Path) -> None:
    formula = _formula()
    sizes = []

    def backwards(measure: Measure, asks: Sequence[Ask]) -> Iterator[tuple[int, Trial]]:
        sizes.append(len(asks))
        for number in reversed(range(len(asks))):
            yield number, measure(asks[number])

    with Journal(tmp_path) as journal:
        running = SettingSearch(formula, journal, MemoryModel((), None), spread=backwards)
        points = running.ask([Ask(setting, 5) for setting in all_settings(KNOBS)])

    assert sizes == [9]
    assert [point.setting for point in points] == list(all_settings(KNOBS))


def test_what_is_refused_is_not_tried(tmp_path: Path) -> None:
    formula = _formula()
    with Journal(tmp_path) as journal:
        running = SettingSearch(
            formula,
            journal,
            MemoryModel((), None),
            refusal=lambda ask: verbatim("never so many") if ask.setting["workers"] > 2 else None,
        )
        points = running.ask([Ask(setting, 5) for setting in all_settings(KNOBS)])

    assert len(formula.asked) == 6
    assert [english(point.why) for point in points if not point.tried] == ["never so many"] * 3


def test_a_setting_that_failed_at_full_length_cannot_be_used(tmp_path: Path) -> None:
    def measure(ask: Ask) -> Trial:
        if ask.steps == LENGTHS.long:
            return Trial("x", {}, "hung", verbatim("no step for 120 s"))
        return Trial("x", {}, "stopped", step_s=(0.1,) * 8, samples=(1.0,) * 8)

    points = search(tmp_path, measure, halve(list(all_settings(KNOBS)), LENGTHS, SPEED))

    failed = [point for point in longest(points) if point.why]
    assert len(failed) == 3 and english(failed[0].why) == "hung: no step for 120 s"


def test_the_script_as_it_is_can_be_chosen_however_early_a_search_ends() -> None:
    first_look = Point({}, 30, samples_per_s=840.0)
    slower = [Point({"workers": n}, 400, samples_per_s=490.0) for n in (0, 1)]

    final, is_rough = finalists([first_look, *slower], 400)
    pick = pick_preset("conservative", final, [knob("workers", 0, 1)], SPEED, first_look)

    assert not is_rough
    assert pick.point == first_look


def test_short_trials_have_to_do_where_no_others_were_made() -> None:
    points = [Point({}, 30), Point({"workers": 1}, 10), Point({"workers": 2}, 10, why=verbatim("crashed"))]

    assert finalists(points, 400) == (points[:2], True)
    assert finalists(points[:1], 400) == (points[:1], False)


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ([knob("workers", *range(17), meaning="num_workers")], "the top of the curve"),
        ([knob("batch", 4, 8, 16, meaning="batch_size")], "doubled while"),
        ([knob("depth", 1, 2, 3)], "all 3 settings"),
        ([knob("a", 1, 2, 3), knob("b", "x", "y", "z", "w")], "all 12 settings"),
        ([knob("a", *range(10)), knob("b", *range(10))], "20 of 100 settings"),
    ],
)
def test_each_kind_of_knobs_is_searched_its_own_way(knobs: list[object], words: str) -> None:
    found = choose_method(knobs, SPEED, LENGTHS, None, 1)  # type: ignore[arg-type]

    assert words in english(found.words)

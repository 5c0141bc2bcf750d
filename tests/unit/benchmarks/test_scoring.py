"""Scoring what was said of a script against what was planted in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.common.corpus import Script
from benchmarks.common.scoring import Found, Outcome, Share, by_family, findings, has_varied, missed, rates, score

SCRIPT = Script("in101_plain", Path("in101_plain.py"), ("IN101",), "either", guilty=frozenset({("in101_plain.py", 40)}))
CONTROL = Script("control_tensors", Path("control_tensors.py"), (), "cpu")


def found(code: str = "IN101", line: int | None = 40, gain: float | None = 1.5) -> Found:
    return Found(code, None if line is None else "somewhere/in101_plain.py", line, gain)


def outcome(*planted: Found, script: Script = SCRIPT, **more: Any) -> Outcome:
    return Outcome(script, planted, **{"planted_rate": 100.0, "repaired_rate": 150.0, **more})


def test_the_place_is_that_of_the_first_finding_that_names_it() -> None:
    assert outcome(found()).place == 1
    assert outcome(found("TR201"), found("SY301"), found()).place == 3
    assert outcome(found("TR201")).place is None
    assert outcome().place is None


def test_another_code_for_the_same_cause_counts() -> None:
    script = replace(SCRIPT, codes=("CF801", "IN101"))

    assert outcome(found("IN101"), script=script).place == 1


@pytest.mark.parametrize(
    ("line", "right"), [(40, True), (38, True), (42, True), (37, False), (43, False), (None, None)]
)
def test_a_line_is_right_within_two(line: int | None, right: bool | None) -> None:
    assert outcome(found(line=line)).line_right is right


def test_a_line_of_another_file_is_wrong_and_a_problem_without_a_line_is_not_judged() -> None:
    elsewhere = Found("IN101", "making.py", 40, 1.5)

    assert outcome(elsewhere).line_right is False
    assert outcome(elsewhere, script=replace(SCRIPT, has_line=False)).line_right is None


@pytest.mark.parametrize(("gain", "right"), [(1.5, True), (1.21, True), (1.79, True), (1.19, False), (1.81, False)])
def test_a_gain_is_right_within_a_fifth_of_the_actual_one(gain: float, right: bool) -> None:
    assert outcome(found(gain=gain)).gain_right is right


def test_no_gain_where_one_was_to_be_predicted_is_wrong() -> None:
    assert outcome(found(gain=None)).gain_right is False
    assert outcome(found(gain=None), script=replace(SCRIPT, gains=False)).gain_right is None
    assert outcome(found(), repaired_rate=None).gain_right is None
    assert outcome().gain_right is None


def test_only_what_a_user_would_act_on_is_an_alarm_and_only_on_a_control() -> None:
    assert outcome(found(gain=1.04), script=CONTROL).alarms == ()
    assert len(outcome(found(gain=1.05), found(gain=None), script=CONTROL).alarms) == 2
    assert outcome(found(gain=2.0)).alarms == ()


def test_what_is_still_said_after_the_repair_is_seen() -> None:
    assert outcome(found(), repaired=(found(gain=1.2),)).still_said
    assert not outcome(found(), repaired=(found(gain=1.02), found("SY301", gain=2.0))).still_said


def test_a_score_counts_failures_as_misses_and_controls_apart() -> None:
    outcomes = [
        outcome(found()),
        outcome(found("TR201", gain=2.0), found(line=90, gain=3.0)),
        Outcome(SCRIPT, (), failure="planted: exit 1"),
        Outcome(CONTROL, ()),
        Outcome(CONTROL, (found(gain=1.3),)),
    ]

    total = score(outcomes)

    assert (total.top1, total.top3) == (Share(1, 3), Share(2, 3))
    assert (total.lines, total.gains, total.quiet) == (Share(1, 2), Share(1, 2), Share(1, 2))
    assert total.failures == 1
    assert list(by_family(outcomes)) == ["IN", "control"]


def test_bars_that_are_missed_are_named_and_those_without_a_case_are_not() -> None:
    good = score([outcome(found()), Outcome(CONTROL, ())])
    bad = score([outcome(), Outcome(CONTROL, (found(),))])

    assert missed(good) == []
    assert len(missed(bad)) == 3
    assert missed(score([])) == []


@given(st.lists(st.sampled_from(["IN101", "TR201", "SY301"]), max_size=6))
def test_whatever_comes_first_is_also_among_the_first_three(codes: list[str]) -> None:
    total = score([outcome(*(found(code) for code in codes))])

    assert total.top1.good <= total.top3.good <= total.top3.of == 1


def test_a_report_gives_its_findings_and_both_arms_a_rate_of_the_same_unit() -> None:
    report = {
        "workers": [{"loader": 1}],
        "throughput": {"samples_per_s": 320.0, "steps_per_s": 10.0},
        "findings": [
            {"code": "IN101", "location": {"file": "a.py", "line": 3}, "predicted_gain": {"mid": 1.4}},
            {"code": "ME701", "location": None, "predicted_gain": None},
        ],
    }
    without = {**report, "throughput": {"samples_per_s": None, "steps_per_s": 20.0}}

    assert findings(report) == (Found("IN101", "a.py", 3, 1.4), Found("ME701", None, None, None))
    assert rates(report, report) == (320.0, 320.0)
    assert rates(report, without) == (10.0, 20.0)
    # Samples that no loader made were read off the graph, which the repair may have changed.
    assert rates(report, {**report, "workers": []}) == (10.0, 10.0)


def test_the_interval_of_a_gain_is_judged_by_what_was_gained() -> None:
    assert outcome(replace(found(), low=1.4, high=1.6)).gain_inside is True
    assert outcome(replace(found(), low=1.1, high=1.4)).gain_inside is False
    assert outcome(found()).gain_inside is None
    assert score([outcome(replace(found(), low=1.1, high=1.4))]).inside == Share(0, 1)
    assert has_varied({"warmup": {"varied_ms": [1.0, 2.0]}}) and not has_varied({"warmup": None})


def test_the_line_names_a_problem_that_no_code_names() -> None:
    at_line = replace(found("SY305"), file="train.py", line=11)
    unnamed = replace(SCRIPT, codes=("other",), guilty=frozenset({("train.py", 10)}))

    assert Outcome(unnamed, (at_line,)).place == 1
    assert Outcome(unnamed, (replace(at_line, line=20),)).place is None
    assert Outcome(unnamed, (at_line,)).is_coded_first is None


def test_a_general_finding_at_the_line_names_any_problem_but_not_by_its_code() -> None:
    guilty = replace(SCRIPT, guilty=frozenset({("train.py", 10)}))
    general = replace(found("HO411"), file="train.py", line=10)

    assert Outcome(guilty, (general,)).place == 1
    assert Outcome(guilty, (general,)).is_coded_first is False
    assert Outcome(guilty, (replace(general, code="SY305"),)).place is None

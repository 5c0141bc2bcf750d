"""Stored runs against each other, and the gate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flatout.app.compare import CompareRequest, compare_runs, least_ratio, run_compare, trial_of
from flatout.diagnose.ranks import training_ranks
from flatout.errors import FlatoutError
from flatout.store.run import StoredRun
from flatout.words import english
from tests.unit.making import UNKNOWN, Making

PHASES = {"data": 0.5, "forward": 0.3}


def make(
    root: Path, *, step_ms: float = 10.0, batch: int = 32, steps: int = 200, seed: int = 0, argv: Any = ("train.py",)
) -> StoredRun:
    """A run with 5% of noise in its steps."""
    making = Making(root, argv)
    process = making.process()
    for factor in np.exp(np.random.default_rng(seed).normal(0.0, 0.05, steps)).tolist():
        process.step(step_ms * factor, PHASES, samples=batch)
    process.end()
    return making.stored()


def _names(*runs: StoredRun) -> list[str]:
    return [str(run.path) for run in runs]


def test_twice_as_fast_is_told_with_an_interval_around_two(tmp_path: Path) -> None:
    slow, fast = make(tmp_path, step_ms=10), make(tmp_path, step_ms=5, seed=1)

    (one,) = compare_runs(_names(slow, fast)).comparisons

    assert one.judgement == "faster"
    assert one.gain is not None and one.ordinary_gain is not None
    assert one.gain.low < 2.0 < one.gain.high
    assert one.gain.low > 1.8 and one.gain.high < 2.2
    assert one.before.samples_per_s == pytest.approx(3200, rel=0.03)
    assert one.phases[0].phase == "data" and one.phases[0].ms[1] - one.phases[0].ms[0] == pytest.approx(-2.5, rel=0.05)


def test_two_runs_of_the_same_are_no_sure_difference_and_one_process_each_is_said(tmp_path: Path) -> None:
    (one,) = compare_runs(_names(make(tmp_path), make(tmp_path, seed=1))).comparisons

    assert one.judgement == "no sure difference"
    assert one.gain is not None and one.gain.low < 1 < one.gain.high
    # What processes differ by is not in one process: the interval has to be wider than its steps alone say.
    assert one.gain.high - one.gain.low > 0.02
    assert any("one process each" in notice and "assumed" in notice for notice in map(english, one.notices))


def test_batches_of_different_size_are_compared_by_samples(tmp_path: Path) -> None:
    small, large = make(tmp_path, step_ms=10, batch=32), make(tmp_path, step_ms=15, batch=64, seed=1)

    (one,) = compare_runs(_names(small, large)).comparisons

    assert one.judgement == "faster" and not one.same_batch
    assert one.gain is not None and one.gain.mid == pytest.approx(4 / 3, rel=0.05)
    assert any("batches differ in size" in english(notice) for notice in one.notices)


def test_without_known_samples_steps_are_compared_and_that_is_said(tmp_path: Path) -> None:
    known, unknown = make(tmp_path), make(tmp_path, batch=UNKNOWN, seed=1)

    (one,) = compare_runs(_names(known, unknown)).comparisons

    assert one.gain is not None and one.gain.unit == "step"
    assert any("steps are compared" in english(notice) for notice in one.notices)


def test_several_runs_of_an_arm_show_what_processes_differ_by(tmp_path: Path) -> None:
    steady = [make(tmp_path, step_ms=10, seed=n) for n in range(2)]
    moody = [make(tmp_path, step_ms=ms, seed=2 + n) for n, ms in enumerate((9.0, 11.0))]

    (alike,) = compare_runs([str(steady[0].path), str(make(tmp_path, step_ms=9.5, seed=9).path)]).comparisons
    (unlike,) = compare_runs([",".join(_names(*steady)), ",".join(_names(*moody))]).comparisons

    assert unlike.gain is not None and alike.gain is not None
    assert unlike.gain.trials == (2, 2)
    assert unlike.gain.high / unlike.gain.low > alike.gain.high / alike.gain.low
    assert unlike.before.name == f"{steady[0].id} +1"
    assert unlike.before.runs == tuple(_names(*steady))
    assert not any("one process each" in english(notice) for notice in unlike.notices)


def test_all_others_are_compared_with_the_first(tmp_path: Path) -> None:
    runs = [make(tmp_path, step_ms=ms, seed=n) for n, ms in enumerate((10, 5, 20))]

    found = compare_runs(_names(*runs)).comparisons

    assert [one.before.name for one in found] == [runs[0].id] * 2
    assert [one.judgement for one in found] == ["faster", "slower"]


@pytest.mark.parametrize(
    ("step_ms", "limit", "code"),
    [
        (10.0, "-3%", 0),
        (10.4, "-3%", 0),  # 4% slower, but not surely more than 3%
        (12.0, "-3%", 1),
        (12.0, "-30%", 0),
        (9.0, "+50%", 1),  # a gain that was demanded
    ],
)
def test_the_gate_fails_only_what_is_surely_below(tmp_path: Path, step_ms: float, limit: str, code: int) -> None:
    names = _names(make(tmp_path), make(tmp_path, step_ms=step_ms, seed=1))

    text, found = run_compare(CompareRequest(names, limit, quiet=True))

    assert found == code
    assert ("failed" in text) == bool(code)


def test_slower_steps_fail_though_a_rare_evaluation_hides_them_in_the_whole_time(tmp_path: Path) -> None:
    runs = []
    for n, step_ms in enumerate((10.0, 12.0)):
        making = Making(tmp_path)
        process = making.process()
        process.steps(100, step_ms, PHASES)
        process.step(3_000.0 - 200 * n, {"eval": 0.99})
        process.steps(100, step_ms, PHASES)
        process.end()
        runs.append(making.stored())

    found = compare_runs(_names(*runs), "-3%")

    (one,) = found.comparisons
    assert one.gain is not None and one.gain.high > 0.97
    assert found.gate is not None and found.gate.failed == (runs[1].id,)


@pytest.mark.parametrize("text", ["3%", "-3", "fast", "-100%", "", "-3%%", "nan%"])
def test_a_limit_that_could_mean_two_things_is_refused(text: str) -> None:
    with pytest.raises(FlatoutError, match="--fail-below must be a percentage with its sign"):
        least_ratio(text)


def test_a_run_without_steps_and_a_run_against_itself_are_refused(tmp_path: Path) -> None:
    run, empty = make(tmp_path), Making(tmp_path).stored()

    with pytest.raises(FlatoutError, match="no training step"):
        compare_runs(_names(run, empty))
    with pytest.raises(FlatoutError, match="named twice"):
        compare_runs(_names(run, run))
    link = tmp_path / "link"
    link.symlink_to(run.path)
    with pytest.raises(FlatoutError, match="named twice"):
        compare_runs([str(run.path), str(link)])
    with pytest.raises(FlatoutError, match="',' names no run"):
        compare_runs([",", str(run.path)])


def test_too_few_steps_give_no_rate_and_no_passing_gate(tmp_path: Path) -> None:
    names = _names(make(tmp_path), make(tmp_path, steps=3))

    assert compare_runs(names).comparisons[0].judgement == "not measured"
    with pytest.raises(FlatoutError, match="too few steps"):
        compare_runs(names, "-3%")


def test_samples_of_all_ranks_add_up(tmp_path: Path) -> None:
    making = Making(tmp_path)
    for rank in range(2):
        process = making.process(100 + rank, rank=rank)
        process.steps(50, 10.0, PHASES)
        process.end()

    trial = trial_of("a", training_ranks(making.stored()))

    assert set(trial.samples) == {64.0}
    assert trial.step_s[0] == pytest.approx(0.01)


def test_records_that_hold_several_steps_count_by_their_steps(tmp_path: Path) -> None:
    making = Making(tmp_path)
    process = making.process()
    process.steps(100, 10.0, PHASES)
    process.steps(100, 20.0, PHASES, steps=2, samples=64)
    process.end()

    trial = trial_of("a", training_ranks(making.stored()))

    assert sum(trial.step_s) / len(trial.step_s) == pytest.approx(0.01)
    assert set(trial.samples) == {32.0}


def test_json_is_plain_and_goes_to_a_file_or_alone_to_stdout(tmp_path: Path) -> None:
    names = _names(make(tmp_path), make(tmp_path, step_ms=8, seed=1, argv=("train.py", "--fast")))
    file = tmp_path / "compared.json"

    page, _ = run_compare(CompareRequest(names, json_file=str(file)))
    alone, _ = run_compare(CompareRequest(names, json_file="-"))

    value = json.loads(file.read_text())
    assert value == json.loads(alone)
    assert value["schema"] == 1
    (one,) = value["comparisons"]
    assert one["settings"] == [{"group": "command", "name": "--fast", "before": None, "after": True}]
    assert one["gain"]["confidence"] == 0.95
    assert one["sentence"] in " ".join(page.split())


def test_what_is_just_at_the_limit_fails_in_one_of_twenty_at_most(tmp_path: Path) -> None:
    rng, failed = np.random.default_rng(7), 0
    for seed in range(40):
        luck = np.exp(rng.normal(0.0, 0.01, 2))  # what processes differ by
        before = make(tmp_path, step_ms=10.0 * luck[0], seed=2 * seed, steps=120)
        after = make(tmp_path, step_ms=10.0 / 0.97 * luck[1], seed=2 * seed + 1, steps=120)
        found = compare_runs(_names(before, after), "-3%")
        failed += bool(found.gate and found.gate.failed)

    # Two are expected at the most; more than six would be a chance of one in a hundred.
    assert failed <= 6

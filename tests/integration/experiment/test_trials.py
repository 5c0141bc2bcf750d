"""Trials of a real script in real processes: how each ends, and what is known of it then."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flatout.experiment import process
from flatout.experiment.judge import compare_bits
from flatout.experiment.request import Request
from flatout.experiment.runner import TrialRunner
from flatout.experiment.turns import build_arms, build_resting_arms, count_turn_steps, resting_steps, weigh_turns
from flatout.records.fix import Planned
from flatout.records.message import verbatim
from flatout.records.trial import Trial
from flatout.words import english

pytestmark = pytest.mark.durations

_SCRIPT = Path(__file__).parents[1] / "scripts" / "tried.py"
Try = Callable[..., Trial]


def _attempting(folder: Path) -> Try:
    def made(mode: str = "plain", arm: str = "as it is", **asked: object) -> Trial:
        usual: dict[str, Any] = {"steps": 30, "warm_up": 5, "allow_writes": True}
        request = Request((str(_SCRIPT), mode), arm, **{**usual, **asked})
        return TrialRunner(folder / "trials")(request)

    return made


@pytest.fixture
def attempt(tmp_path: Path) -> Try:
    return _attempting(tmp_path)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """One that several tests compare theirs with."""
    return _attempting(tmp_path_factory.mktemp("plain"))()


def test_it_is_stopped_after_its_steps_and_the_same_again_is_bit_for_bit_the_same(attempt: Try, plain: Trial) -> None:
    fed = attempt(arm="loader.workers", remedies={"loader.workers": 2})

    assert (plain.ending, fed.ending) == ("stopped", "stopped")
    assert len(plain.step_s) == len(plain.samples) == 25
    assert set(plain.samples) == {8}
    assert len(plain.losses) == 30
    assert fed.losses == plain.losses
    assert fed.weights == plain.weights is not None
    assert [state.state for state in fed.states] == ["applied"]
    assert sum(fed.step_s) < sum(plain.step_s)


def test_perturbed_trials_begin_alike_and_part_each_its_own_way(attempt: Try, plain: Trial) -> None:
    """By as much as they were perturbed by: a thousand times less is a thousand times less to be seen."""
    coarse, other, fine = (
        attempt(arm="perturbed weights", perturbed=by, repeat=repeat)
        for by, repeat in ((2.0**-9, 0), (2.0**-9, 1), (2.0**-19, 0))
    )

    def parted(left: Trial, right: Trial) -> float:
        return float(np.abs(np.subtract(left.losses[1:6], right.losses[1:6])).max())

    assert {one.losses[0] for one in (coarse, other, fine)} == {plain.losses[0]}
    assert parted(coarse, plain) > 100 * parted(fine, plain) > 0
    assert parted(coarse, other) > 10 * parted(fine, plain)


def test_one_that_has_enough_ends_sooner_and_its_weights_are_compared_after_the_same_step(attempt: Try) -> None:
    whole = attempt(steps=30, digest_at=12)
    short = attempt(steps=60, enough=(12, 5, 0.0), digest_at=12)
    # Eight samples of a millisecond each make a step, so it is the time that counts.
    timed = attempt(steps=60, enough=(12, 5, 0.15))

    assert (len(whole.losses), len(short.losses)) == (30, 12)
    assert whole.weights == short.weights is not None and whole.steps == short.steps == 12
    assert 12 < len(timed.losses) < 60 and sum(timed.step_s) > 0.1


def test_samples_that_draw_random_numbers_draw_others_in_workers_and_that_is_known(attempt: Try) -> None:
    plain = attempt("draws")
    fed = attempt("draws", "loader.workers", remedies={"loader.workers": 2})
    others = [attempt("draws", "others", reseeded=count) for count in (1, 2)]

    assert compare_bits([plain], fed).verdict == "not comparable"
    # From the second step on, for the first batch had been made.
    assert all(other.losses[0] == plain.losses[0] and other.losses[1] != plain.losses[1] for other in others)
    assert others[0].losses[1:] != others[1].losses[1:]


@pytest.mark.parametrize(
    ("mode", "ending", "why"),
    [
        ("raises", "crashed", "ValueError: a broken sample"),
        ("memory", "out of memory", "CUDA out of memory"),
        ("segfault", "crashed", ""),
        ("nan", "not finite", "pass 13"),
        ("short", "finished", ""),
    ],
)
def test_what_goes_wrong_is_a_result(attempt: Try, mode: str, ending: str, why: str) -> None:
    trial = attempt(mode)

    assert trial.ending == ending
    assert why in english(trial.why)
    assert trial.ended_well == (ending == "finished")


def test_one_that_hangs_is_ended_with_all_its_processes(attempt: Try, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_HUNG_S", 3.0)

    trial = attempt("hangs")

    assert trial.ending == "hung"
    assert trial.wall_s < 60


def test_time_ends_it_from_within_and_from_without(attempt: Try) -> None:
    soon = attempt(steps=10_000, seconds=0.3)
    cut = attempt("hangs", limit_s=5.0)

    assert soon.ending == "stopped"
    assert 8 <= len(soon.losses) < 100
    assert cut.ending == "out of time"


def test_what_the_script_says_of_its_quality_is_read(attempt: Try) -> None:
    assert attempt(steps=130, metric=r"PSNR: ([0-9.]+)").metric == 21.5


def test_a_ceiling_gives_the_same_batches_again(attempt: Try, plain: Trial) -> None:
    ceiling = attempt(arm="ceiling", replays=8)

    assert ceiling.ending == "stopped"
    assert sum(ceiling.step_s[-10:]) < 0.5 * sum(plain.step_s[-10:])


@pytest.mark.parametrize(
    ("remedies", "batch_s"), [({}, 0.05), pytest.param({"loader.workers": 2}, 0.025, marks=pytest.mark.variant)]
)
def test_batches_that_lay_ready_say_nothing_of_the_pace(
    tmp_path: Path, remedies: dict[str, Any], batch_s: float
) -> None:
    script = str(_SCRIPT.with_name("stocked.py"))

    trial = TrialRunner(tmp_path)(Request((script,), "stocked", remedies, steps=110, warm_up=4))

    # What lay ready was taken within 10 ms a step.
    assert trial.ending == "stopped" and 53 <= len(trial.step_s) < 100
    assert np.mean(trial.step_s) == pytest.approx(batch_s, rel=0.2)


def test_a_trial_made_before_is_not_made_again(tmp_path: Path) -> None:
    begun: list[str] = []
    maker = TrialRunner(tmp_path, tell=lambda request: begun.append(request.arm))
    request = Request((str(_SCRIPT), "short"), "as it is", steps=30, allow_writes=True)

    first, second = maker(request), maker(request)

    assert begun == ["as it is"]
    assert second == first


def test_all_ranks_of_torchrun_leave_together(tmp_path: Path) -> None:
    script = _SCRIPT.with_name("ddp.py")
    command = ("torchrun", "--standalone", "--nproc-per-node", "2", str(script))

    trial = TrialRunner(tmp_path)(Request(command, "as it is", steps=12, warm_up=2, seconds=0.01))

    assert trial.ending == "stopped", english(trial.why)
    assert len(trial.losses) == 12
    assert set(trial.samples) == {16}


@pytest.mark.variant
def test_one_rank_that_is_out_of_memory_speaks_for_all(tmp_path: Path) -> None:
    """Then a smaller size is tried, on every rank: torchrun's own words for it would have been a crash."""
    command = ("torchrun", "--standalone", "--nproc-per-node", "2", str(_SCRIPT.with_name("ddp.py")), "--memory")

    trial = TrialRunner(tmp_path)(Request(command, "as it is", steps=12, warm_up=2))

    assert trial.ending == "out of memory"
    assert "CUDA out of memory" in english(trial.why)


@pytest.mark.timing
def test_arms_take_turns_within_one_process(tmp_path: Path) -> None:
    """Anomaly mode makes steps several times as long: switching it off in mid-training shows at once."""
    script = _SCRIPT.parent / "switched.py"
    arms = build_arms([planned("autograd.plain"), planned("optimizer.fused")])
    make = TrialRunner(tmp_path / "trials")

    trial = make(Request((str(script),), "in turns", steps=count_turn_steps(arms), arms=arms, allow_writes=True))
    found = make.in_turns(trial)
    weights = weigh_turns(found, [planned("autograd.plain"), planned("optimizer.fused")])

    assert trial.ending == "stopped"
    # Six, but for those in which the machine was busy with something else.
    assert all(4 <= len(one.step_s) <= 6 for one in found.values())
    assert np.median(found["autograd.plain"].step_s) < 0.7 * np.median(found["as it is"].step_s)
    assert weights is None or weights.decisions["autograd.plain"].judgement == "kept"
    told = [json.loads(line[6:]) for line in (Path(trial.run) / "output.txt").read_text().splitlines()]
    # Those of a turn at most; none is left behind by those that ended.
    assert max(one["hooks"] for one in told) <= told[0]["hooks"] + 3


def test_a_remedy_rests_in_some_turns_and_is_in_force_in_others(tmp_path: Path) -> None:
    """With checkpointing every block runs twice, unless what it computed is kept."""
    keep = planned("memory.keep")
    arms, settling, make = build_resting_arms([keep]), resting_steps([keep], 8), TrialRunner(tmp_path)
    steps = count_turn_steps(arms, settling=settling)
    script = str(_SCRIPT.parent / "recomputed_each_step.py")

    plain = make(Request((script,), "as it is", steps=steps))
    trial = make(Request((script,), "turns", {"memory.keep": True}, steps=steps, arms=arms, settling=settling))

    said = [line for line in (Path(trial.run) / "output.txt").read_text().splitlines() if line.isdigit()]
    turns = [(runs, len(list(same))) for runs, same in groupby(said[10:])]
    # With and without in turns of so many steps, two or more of a kind in a row; the last step has no turn.
    assert {length % (settling + 8) for _, length in turns[:-1]} == {0}
    assert sum(length for runs, length in turns if runs == "4") * 3 == pytest.approx(len(said[10:]), abs=3)
    assert trial.losses == plain.losses and trial.weights == plain.weights
    assert {len(arm.step_s) for arm in make.in_turns(trial).values()} <= {4, 5, 6}


def test_results_that_one_trial_kept_are_there_for_the_next(tmp_path: Path) -> None:
    command = (str(_SCRIPT.parent / "comes_again.py"),)
    profile, make = {"memo.function": "__main__:targets"}, TrialRunner(tmp_path)

    plain = make(Request(command, "as it is", steps=40))
    first, second = (make(Request(command, "kept", profile, steps=40, repeat=repeat)) for repeat in range(2))

    assert first.losses == second.losses == plain.losses and first.weights == second.weights == plain.weights
    told = [one.states[0].live for one in (first, second)]
    # Twelve batches are an epoch; three hits are compared before they count.
    assert [int(str(one["hits_from_step"])) for one in told] == [16, 4]
    assert told[0]["carried"] is told[1]["carried"] is True and told[1]["misses"] == 0


def planned(name: str) -> Planned:
    return Planned(name, True, "numeric", name, verbatim("to be tried"))

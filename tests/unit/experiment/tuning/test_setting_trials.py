"""Knobs against remedies, command and config files; from a setting to a trial; the files of a pick."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from flatout.errors import FlatoutError
from flatout.experiment.request import Request
from flatout.experiment.tuning.knobs import read_knobs
from flatout.experiment.tuning.picks import write_pick
from flatout.experiment.tuning.trials import SettingTrials, digest_search
from flatout.launch.profile import read_profile
from flatout.records.message import verbatim
from flatout.records.trial import Trial
from flatout.records.tune import Ask, Pick, Point
from flatout.words import english

COMMAND = ("train.py", "--config", "c.yaml", "--window", "8", "model.depth=4")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "c.yaml").write_text("MODEL:\n  DEPTHS: [2, 2]  # stages\nDATA: {num_workers: 4}\n")
    return tmp_path


def _made(request: Request) -> Trial:
    return Trial(request.arm, dict(request.remedies), "stopped")


def _trials(folder: Path, *words: str, **base: Any) -> SettingTrials:
    knobs = read_knobs(words, COMMAND, folder)
    return SettingTrials(_made, COMMAND, knobs, base, folder / "tune", folder, 10, 600.0, None)


@pytest.mark.parametrize(
    ("word", "kind", "target", "safety", "meaning"),
    [
        ("workers=1,2", "remedy", "loader.workers", "lossless", "num_workers"),
        ("batch_size=4,6,8", "remedy", "batch.size", "training", "batch_size"),
        ("batch.size=2,4", "remedy", "batch.size", "training", "batch_size"),
        ("precision.bf16=on,off", "remedy", "precision.bf16", "numeric", ""),
        ("--window=8,7", "flag", "--window", "training", ""),
        ("--num-workers=1,2", "flag", "--num-workers", "lossless", "num_workers"),
        ("--amp=present,absent", "flag", "--amp", "numeric", "amp"),
        ("model.depth=2,4", "flag", "model.depth", "training", ""),
        ("c.yaml:MODEL.DEPTHS=[2,2],[4,4]", "config", "MODEL.DEPTHS", "training", ""),
        ("c.yaml:DATA.num_workers=1,2", "config", "DATA.num_workers", "lossless", "num_workers"),
    ],
)
def test_what_a_knob_turns(folder: Path, word: str, kind: str, target: str, safety: str, meaning: str) -> None:
    (knob,) = read_knobs([word], COMMAND, folder)

    assert (knob.kind, knob.target, knob.safety, knob.meaning) == (kind, target, safety, meaning)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "nothing to tune"),
        (["loader.worker=1,2"], "no remedy is called so"),
        (["workers=4,many"], "must be a whole number"),
        (["batch_size=0,4"], "must be a whole number"),
        (["precision.bf16=maybe"], "must be true or false"),
        (["--window=auto"], "only workers, prefetch and batch_size"),
        (["gc.defer=auto"], "only workers, prefetch and batch_size"),
        (["d.yaml:A=1,2"], "the command does not name 'd.yaml'"),
        (["c.yaml:MODEL.DEPTH=1,2"], "has no key 'DEPTH' under 'MODEL'; there are DEPTHS"),
        (["workers=1,2", "loader.workers=3,4"], "is given twice"),
    ],
)
def test_a_mistake_is_one_line_before_the_first_trial(folder: Path, words: list[str], says: str) -> None:
    with pytest.raises(FlatoutError) as raised:
        read_knobs(words, COMMAND, folder)

    assert says in str(raised.value) and "\n" not in str(raised.value)


def test_auto_finds_its_own_values(folder: Path) -> None:
    (alone,) = read_knobs(["workers=auto"], COMMAND, folder)
    beside, size, ahead = read_knobs(["workers=auto", "batch_size=auto", "prefetch=auto"], COMMAND, folder)

    assert alone.values == tuple(range(len(alone.values))) and len(alone.values) >= 3
    assert beside.values[0] == 0 and beside.values[-1] == alone.values[-1]
    assert size.values[0] == 1 and ahead.values[0] == 1


def test_a_setting_becomes_a_request(folder: Path) -> None:
    trials = _trials(
        folder, "workers=0,4", "batch_size=4,8", "--window=8,7", "c.yaml:MODEL.DEPTHS=[2,2],[4,4]", **{"gc.defer": True}
    )
    setting = {"workers": 4, "batch_size": 8, "--window": 7, "c.yaml:MODEL.DEPTHS": "[4,4]"}

    request = trials.request(Ask(setting, 20, 1))

    copy = Path(request.command[2])
    assert request.command == ("train.py", "--config", str(copy), "--window", "7", "model.depth=4")
    assert (folder / copy).read_text() == "MODEL:\n  DEPTHS: [4,4]  # stages\nDATA: {num_workers: 4}\n"
    assert request.remedies == {
        "gc.defer": True,
        "loader.workers": 4,
        "batch.size": {"times": 2, "rate": "auto", "size": 8},
    }
    assert (request.knobs, request.repeat) == (setting, 1)
    # Batches that workers have ready are warm-up, and the steps see several rounds of them.
    assert (request.warm_up, request.steps) == (10 + 4 * 2, 18 + 20)
    assert (folder / "c.yaml").read_text().startswith("MODEL:\n  DEPTHS: [2, 2]")


def test_the_script_as_it_is_stays_as_it_is(folder: Path) -> None:
    trials = _trials(folder, "batch_size=auto", "precision.bf16=on,off")

    bare = trials.request(Ask({}, 20))
    off = trials.request(Ask({"batch.size": 1, "precision.bf16": False}, 20))

    assert (bare.command, bare.remedies, bare.arm) == (COMMAND, {}, "as it is")
    assert (off.command, off.remedies) == (COMMAND, {})


def test_remedies_of_which_one_can_hold_make_no_setting(folder: Path) -> None:
    trials = _trials(folder, "precision.bf16=on,off", "precision.fp16=on,off")

    refusal = trials.refusal(Ask({"precision.bf16": True, "precision.fp16": True}, 20))
    assert refusal is not None and english(refusal).startswith("not tried: ")
    assert trials.refusal(Ask({"precision.bf16": True, "precision.fp16": False}, 20)) is None


def test_a_pick_is_a_profile_its_copies_and_a_command(folder: Path) -> None:
    trials = _trials(folder, "workers=0,4", "c.yaml:MODEL.DEPTHS=[2,2],[4,4]")
    point = Point({"workers": 4, "c.yaml:MODEL.DEPTHS": "[4,4]"}, 60, samples_per_s=3.0)

    pick = write_pick(
        Pick("balanced", point, verbatim("as measured")), trials, folder / "tune" / "balanced", "3.00 samples/s"
    )

    assert read_profile(folder / "tune" / "balanced" / "flatout.toml", ()).values == {"loader.workers": 4}
    assert tomllib.loads((folder / "tune/balanced/flatout.toml").read_text()) == {
        "remedies": {"loader": {"workers": 4}}
    }
    (copy,) = (folder / "tune" / "balanced").glob("c-*.yaml")
    assert pick.folder == "tune/balanced"
    assert pick.command == (
        f"flatout run --with tune/balanced/flatout.toml train.py --config {copy.relative_to(folder)} "
        "--window 8 model.depth=4"
    )


def test_a_pick_without_remedies_needs_no_flatout(folder: Path) -> None:
    trials = _trials(folder, "--window=8,7")

    pick = write_pick(Pick("chosen", Point({"--window": 7}, 60), verbatim("x")), trials, folder / "tune" / "chosen", "")

    assert pick.command == "python train.py --config c.yaml --window 7 model.depth=4"
    assert not (folder / "tune" / "chosen" / "flatout.toml").exists()


def test_a_search_is_the_same_until_something_changes(folder: Path) -> None:
    (folder / "train.py").write_text("pass\n")
    knobs = read_knobs(["workers=1,2"], COMMAND, folder)
    first = digest_search(COMMAND, knobs, (), folder)

    assert digest_search(COMMAND, knobs, (), folder) == first
    assert digest_search(COMMAND, read_knobs(["workers=1,3"], COMMAND, folder), (), folder) != first
    (folder / "c.yaml").write_text("MODEL: {DEPTHS: 3}\n")
    assert digest_search(COMMAND, knobs, (), folder) != first

"""The page of `flatout compare`."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from flatout.records.comparison import Arm, Compared, Comparison, Gate, PhaseChange, SettingChange
from flatout.records.message import verbatim
from flatout.records.proof import MeasuredGain
from flatout.records.report import Finding, Location
from flatout.report.compare import render, to_json

GAIN = MeasuredGain(1.9, 2.0, 2.1, 0.95, "sample", "total", (1, 1))
BEFORE = Arm("one", ("runs/one",), "train.py", "cpu", 1, 200, 10.0, 320.0, 100.0, 32.0, "input", verbatim("It waits."))
AFTER = replace(BEFORE, name="two", runs=("runs/two",), steps_per_s=20.0, samples_per_s=640.0, step_ms=50.0)
FOUND = Finding(
    "IN101", "input", "No workers", "medium", Location("train.py", 3), {}, verbatim("cause"), None, None, None
)
ONE = Comparison(
    BEFORE,
    AFTER,
    "faster",
    verbatim("two is faster than one: ×2 (+90.0% … ×2.1) samples/s"),
    GAIN,
    GAIN,
    (
        PhaseChange("data", (80.0, 30.0), (0.8, 0.6), (2500.0, 937.5)),
        PhaseChange("gc", (0.001, 0.0), (0.00001, 0.0), None),
    ),
    (SettingChange("loader Images", "num_workers", 0, 8), SettingChange("torch", "cudnn_benchmark", False, True)),
    (FOUND,),
    (),
    (),
    (verbatim("one process each"),),
)


LONG = SettingChange("loader " + "Images" * 9, "num_workers_" * 9, "x" * 99, ["y" * 60, "z" * 60])


def _page(compared: Compared, width: int = 100, **more: bool) -> str:
    return render(compared, **({"width": width, "color": False, "unicode": True, **more}))  # type: ignore[arg-type]


def test_speed_phases_settings_and_findings_are_there() -> None:
    page = _page(Compared((ONE,)))

    assert "FASTER" in page and "two is faster than one" in page
    row = next(line for line in page.splitlines() if line.startswith(" two"))
    assert row.split() == ["two", "640", "20.0", "50.0", "ms", "32", "×2.000", "(1.900", "…", "2.100)"]
    data = next(line for line in page.splitlines() if line.startswith(" data"))
    assert data.split() == ["data", "80.0", "ms", "80%", "→", "30.0", "ms", "60%", "-50.0", "ms"]
    assert "num_workers 0 → 8" in page
    assert "gone        IN101 No workers, train.py:3" in page
    assert " gc " not in page


def test_disturbed_runs_are_said_before_anything_else() -> None:
    page = _page(Compared((ONE,), disturbed=(verbatim("runs/one: others had the cores."),)))

    assert page.split()[:2] == ["DISTURBED", "runs/one:"] and "DISTURBED" not in _page(Compared((ONE,)))


def test_a_sample_s_time_is_shown_where_batches_differ() -> None:
    larger = replace(ONE, after=replace(AFTER, samples_per_step=64.0), phases=ONE.phases[:1])

    page = _page(Compared((larger,)))

    assert "Where the time per sample goes" in page
    assert "2.50 ms  80%  →  0.94 ms  60%   -1.56 ms" in page


def test_what_was_not_measured_is_a_dash_not_a_zero() -> None:
    unknown = replace(BEFORE, samples_per_s=None, samples_per_step=None)

    page = _page(Compared((replace(ONE, before=unknown, gain=None, ordinary_gain=None, judgement="not measured"),)))

    row = next(line for line in page.splitlines() if line.startswith(" one "))
    assert row.split() == ["one", "–", "10.0", "100", "ms", "–"]
    assert "NO RATE" in page


@pytest.mark.parametrize(("failed", "word"), [((), "passed"), (("two",), "failed: two is clearly below 97%")])
def test_the_gate_says_what_it_did(failed: tuple[str, ...], word: str) -> None:
    page = _page(Compared((ONE,), Gate(0.97, failed)), quiet=True)

    assert word in page
    assert "Settings" not in page


@pytest.mark.parametrize("width", [60, 80, 120])
def test_words_are_wrapped_to_the_terminal(width: int) -> None:
    long = replace(ONE, notices=(verbatim("word " * 60),), sentence=verbatim("word " * 60))

    lines = _page(Compared((long,)), width).splitlines()

    assert max(len(line) for line in lines if "word" in line) <= width


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("unicode", [True, False])
def test_long_names_are_shortened_in_the_middle_and_no_line_is_too_long(width: int, unicode: bool) -> None:
    names = [f"20261116-093000-train-segmentation-{word * 20}-{number}" for number, word in enumerate(("a", "b", "c"))]
    first, *others = (replace(BEFORE, name=name, samples_per_s=1_234_567.0, steps_per_s=38_580.2) for name in names)
    pairs = tuple(replace(ONE, before=first, after=other, settings=(LONG,)) for other in others)

    page = _page(Compared(pairs, Gate(0.97, (names[2],))), width, unicode=unicode)
    lines = page.splitlines()

    assert max(len(line) for line in lines) <= width
    (head,) = [at for at, line in enumerate(lines) if line.startswith(" run ")]
    rows = lines[head + 1 : head + 4]
    assert all(row.startswith(" 2026") for row in rows)
    assert [row.split()[0][-3:] for row in rows] == ["a-0", "b-1", "c-2"], "the end tells them apart"
    assert all("1,234,567" in row for row in rows)


def test_no_escape_sequence_of_a_name_reaches_the_terminal() -> None:
    name = "two\x1b[31m\x07"
    evil = replace(ONE, after=replace(AFTER, name=name), settings=(SettingChange("torch", "a\x1b]0;x", "\x1b[2J", 1),))

    page = _page(Compared((evil, evil), Gate(0.97, (name,))))

    assert "\x1b" not in page and "\x07" not in page


def test_ascii_and_json_hold_nothing_else() -> None:
    compared = Compared((replace(ONE, settings=(SettingChange("torch", "x", float("nan"), {1: object}),)),))

    page = render(compared, width=80, color=False, unicode=False)
    value = json.dumps(to_json(compared), allow_nan=False)

    assert page.isascii()
    assert json.loads(value)["comparisons"][0]["settings"][0]["before"] is None

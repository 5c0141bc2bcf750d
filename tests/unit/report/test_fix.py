"""The page of `flatout fix`, and its JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from flatout.records.fix import Fix, Foretold, LeftOut, Plan, Planned, Quality, Tried, compare_predictions
from flatout.records.message import message, verbatim
from flatout.records.proof import Ceiling, Decision, Hours, Identity, MeasuredGain
from flatout.records.report import Gain, Verdict
from flatout.report.fix import render, render_plan, to_json
from flatout.report.json import fix_from_json
from tests.unit.report.test_ladder import LADDER


def _gain(low: float, mid: float, high: float) -> MeasuredGain:
    return MeasuredGain(low, mid, high, 0.95, "sample", "blocks", (2, 2))


WORKERS = Planned("loader.workers", 8, "lossless", "t", verbatim("why"), ("IN101",), Gain(2, 3, 4, verbatim("m")))
SKIP = Planned("sync.skip", True, "lossless", "t", verbatim("why"))
CEILING = message(
    "ceiling.reached_of_one",
    percent=98.0,
    per_s=1060.0,
    unit=message("ceiling.samples"),
    alone=message("ceiling.device"),
    other=message("ceiling.loader"),
)
FIX = Fix(
    command=("train.py", "--lr", "1"),
    device="NVIDIA H200",
    verdict=Verdict("input", False, verbatim("It waits.")),
    tried=(
        Tried(
            WORKERS,
            "kept",
            verbatim("+205%"),
            Decision("loader.workers", "kept", _gain(2.9, 3.05, 3.2), verbatim("+205%")),
        ),
        Tried(SKIP, "refused", message("streams.own")),
    ),
    left_out=(LeftOut("precision.tf32", message("plan.not_allowed", safety="numeric")),),
    profile={"loader.workers": 8},
    unit="sample",
    before_per_s=340.0,
    after_per_s=1037.0,
    gain=_gain(2.88, 3.05, 3.2),
    hours_before=Hours(9.0, 9.1, 9.2, 0.95),
    hours_after=Hours(2.9, 2.98, 3.1, 0.95),
    ceiling=Ceiling("sample", 1037.0, 1060.0, None, "compute", _gain(0.96, 0.98, 1.0), True, CEILING),
    quality=Quality(Identity("identical", 120, message("identity.weights_not_compared", steps=120))),
    ended=message("search.at_ceiling"),
    trials=9,
    took_s=133.0,
)


def _shown(fix: Fix, **more: bool) -> str:
    return render(fix, width=80, color=False, unicode=True, **more)


def test_before_after_every_remedy_and_the_quality_are_there() -> None:
    page = _shown(FIX)

    assert "340 samples/s · 9.10 h for 100,000 steps" in page
    assert "1,037 samples/s · 2.98 h" in page
    assert "×3.05 (2.88 … 3.20)" in page
    assert "98% of the 1060 samples/s" in page
    row = next(line for line in page.splitlines() if "loader.workers=8" in line)
    assert row.split() == [
        "loader.workers=8",
        "lossless",
        "×3.00",
        "×3.05",
        "(2.90",
        "…",
        "3.20)",
        "kept",
        "(high",
        "impact)",
    ]
    assert "the script works with CUDA streams of its own" in page
    assert "bit-identical over 120 steps" in page
    assert "9 trials in 2 min 13 s" in page
    assert max(map(len, page.splitlines())) <= 80


def test_a_figure_of_several_remedies_says_whose_it_is() -> None:
    pair = replace(FIX.tried[0], together=("loader.pin",))

    page = _shown(replace(FIX, tried=(pair,)))

    assert "together with loader.pin" in page and "together" not in _shown(FIX)
    read = fix_from_json(json.loads(json.dumps(to_json(replace(FIX, tried=(pair,))))))
    assert read.tried == (pair,)


def test_the_ladder_says_what_is_left_to_the_devices_limit() -> None:
    page = " ".join(_shown(replace(FIX, ladder=LADDER)).split())

    assert "Ladder as it is 61.0 ms · without waits 59.2 ms" in page and "arithmetic alone 3.99 ms" in page
    assert "Ladder" not in _shown(FIX)


def test_what_was_not_tried_is_said_when_asked_for() -> None:
    assert "precision.tf32" not in _shown(FIX)
    assert "precision.tf32 was not tried" in _shown(FIX, verbose=True)


def test_nothing_kept_is_no_after() -> None:
    page = _shown(replace(FIX, profile={}, gain=None, quality=Quality()))

    assert "No remedy was kept" in page
    assert "After" not in page and "Quality" not in page


def test_without_a_quality_figure_it_is_called_not_verified() -> None:
    assert "not verified" in _shown(replace(FIX, quality=Quality()))


def test_disturbed_trials_are_said_before_anything_else() -> None:
    words = message("machine.trials_again", again=2)

    page = _shown(replace(FIX, disturbed=words))

    assert page.split()[:3] == ["DISTURBED", "2", "trials"] and "DISTURBED" not in _shown(FIX)
    assert fix_from_json(json.loads(json.dumps(to_json(replace(FIX, disturbed=words))))).disturbed == words


def test_it_is_all_in_the_json() -> None:
    value = json.loads(json.dumps(to_json(FIX)))

    assert value["schema"] == 1
    assert value["profile"] == {"loader.workers": 8}
    assert value["tried"][0]["decision"]["gain"]["mid"] == 3.05


def test_the_plan_says_what_and_why_and_what_not() -> None:
    page = render_plan(Plan((WORKERS,), FIX.left_out), width=80, color=False, unicode=True)

    assert "high" in page and "loader.workers=8 (lossless, predicted ×3.00): why" in page
    assert "precision.tf32: it is numeric" in page
    assert "nothing to try" in render_plan(Plan(()), width=80, color=False, unicode=True)


def test_predicted_gains_are_judged_by_the_measured_ones() -> None:
    off = replace(FIX.tried[0], planned=replace(WORKERS, predicted=Gain(1, 1.5, 2, verbatim("m"))))
    paired = replace(off, together=("loader.pin",))
    foretold = compare_predictions((*FIX.tried, off, paired))

    assert foretold == Foretold(remedies=2, near=1, ratio=pytest.approx((3.05 / 3 + 3.05 / 1.5) / 2))
    assert "1 of 2 gains came within 20%" in _shown(replace(FIX, foretold=foretold))
    assert fix_from_json(to_json(replace(FIX, foretold=foretold))).foretold == foretold
    assert compare_predictions(FIX.tried[1:]) is None

"""The table of a search, and its JSON."""

from __future__ import annotations

import json
from dataclasses import replace

from flatout.records.message import message, verbatim
from flatout.records.tune import Knob, Metric, Pick, Point, Tuned
from flatout.report.tune import render, to_json

BASE = Point({}, 60, samples_per_s=100.0, error=0.012, memory_bytes=10 * 2.0**30, metric=31.2)
FAST = Point(
    {"workers": 8, "c.yaml:M.D": "[4]"}, 60, samples_per_s=252.0, error=0.02, memory_bytes=2.0**34, metric=31.1
)
SHORT = Point({"workers": 4, "c.yaml:M.D": "[4]"}, 20, samples_per_s=50.0)
FAILED = Point({"workers": 64, "c.yaml:M.D": "[4]"}, 20, why=verbatim("out of memory: \x1b[31mno room"))
TUNED = Tuned(
    command=("train.py",),
    knobs=(Knob("workers", "remedy", "loader.workers", (4, 8, 64), "lossless"),),
    method=verbatim("all 3 settings"),
    goal="samples/s",
    metric=Metric("PSNR: (.*)", True),
    constraints=("memory<70GB",),
    baseline=BASE,
    points=(BASE, FAST, SHORT, FAILED),
    front=(FAST, BASE),
    chosen=Pick(
        "chosen", FAST, verbatim("the fastest"), "tune/chosen", "flatout run --with tune/chosen/flatout.toml train.py"
    ),
    presets=(
        Pick("conservative", BASE, verbatim("the script as it is")),
        Pick("low-memory", None, verbatim("memory was not measured")),
    ),
    rate="samples/s",
    memory="GPU memory",
    trials=5,
    settings=3,
    wall_s=200.0,
    ended=verbatim(""),
    folder="tune",
    notices=(verbatim("The machine changed its pace."),),
)


TABLE = """\
 all 3 settings · 5 trials in 3 min 20 s

   setting              samples/s   gain  GPU memory  metric
 · as it is               100 ±1%  ×1.00    10.0 GiB    31.2
 → workers 8 · M.D [4]    252 ±2%  ×2.52    16.0 GiB    31.1
   → chosen  · Pareto front: no measured setting is better in every respect

 Failed
   workers 64 · M.D [4]: out of memory: ?[31mno room

 The machine changed its pace.

 Presets
   conservative  as it is (the script as it is)
   low-memory    memory was not measured

 Chosen: workers 8 · M.D [4] (the fastest)
 Use it: flatout run --with tune/chosen/flatout.toml train.py
"""


def test_the_table() -> None:
    assert render(TUNED) == TABLE


def test_disturbed_trials_are_said_first() -> None:
    disturbed = replace(TUNED, disturbed=message("machine.trials_again", again=2))

    assert render(disturbed).lstrip().startswith("DISTURBED  2 trials were disturbed") and TABLE in render(disturbed)


def test_in_ascii_too() -> None:
    assert render(TUNED, unicode=False).isascii()


def test_what_was_not_measured_is_said_so() -> None:
    bare = replace(FAST, memory_bytes=None, metric=None, error=None)

    text = render(replace(TUNED, points=(bare,), baseline=None, front=(), presets=()))

    row = next(line for line in text.splitlines() if "workers 8" in line)
    assert row.split()[-4:] == ["252", "–", "–", "–"]


def test_json_holds_everything_and_no_nan() -> None:
    odd = replace(BASE, samples_per_s=float("nan"))

    value = json.loads(json.dumps(to_json(replace(TUNED, points=(odd, FAILED))), allow_nan=False))

    assert value["schema"] == 1
    assert value["points"][0]["samples_per_s"] is None
    assert value["points"][1]["why"].startswith("out of memory")
    assert value["chosen"]["point"]["setting"] == {"workers": 8, "c.yaml:M.D": "[4]"}
    assert value["constraints"] == ["memory<70GB"] and value["knobs"][0]["values"] == [4, 8, 64]

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from flatout.errors import FlatoutError
from flatout.records.message import VERBATIM, message, verbatim
from flatout.records.report import (
    PHASES,
    CopySite,
    Cost,
    Finding,
    Gain,
    GpuUse,
    Grounds,
    LineCost,
    Location,
    Overhead,
    PauseSite,
    PhaseShare,
    RankUse,
    RunFacts,
    RunReport,
    SyncSite,
    Throughput,
    Verdict,
    WorkerCost,
)
from flatout.report.json import from_json, to_json

HERE = Location("train.py", 7)
REPORT = RunReport(
    run=RunFacts("id", ("train.py", "--lr", "0.1"), 0, 100, 12.5, 2, "NVIDIA H200", "2.13.0", "3.11.7"),
    throughput=Throughput(10.0, None),
    phases={name: PhaseShare(1 / len(PHASES), 1.0) for name in PHASES},
    gpu=GpuUse(starved_share=0.25, memory_peak=10**10, device_ms={"step": 10.0}),
    verdict=Verdict("input", False, verbatim("The GPU waits."), Grounds(True, 10.0, None, (Cost("input", 0.5),))),
    findings=(
        Finding(
            "IN101",
            "input",
            "No workers",
            "high",
            HERE,
            {"share": 0.3},
            verbatim("why"),
            "workers",
            verbatim("how"),
            Gain(1, 2, 3, verbatim("m")),
        ),
        Finding("CO501", "compute", "TF32 off", "low", None, {}, verbatim("why"), None, None, None),
    ),
    overhead=Overhead(8.0, 0.001),
    lines=(LineCost(HERE, "main", "data", 0.5, 5.0),),
    syncs=(SyncSite(HERE, "main", "item", 1.0, None),),
    copies=(CopySite(HERE, "main", 1.0, 0.1, 1e6, 0.5, 0.5),),
    workers=(WorkerCost(1, 4, 100, 1.0, 0.1, 20.0, None, 0.3, None),),
    live={"loaders": [{"id": 1}]},
    environment={"cpus": 2},
    notices=(verbatim("one"), verbatim("two")),
    pauses=(PauseSite(HERE, "main", "checkpoint", 2, 1.0, 0.6),),
    ranks=(RankUse(0, "box", 100, 50, 10.0, None, {"data": 1.0}, True),),
    warmup_steps=3,
)


def test_a_report_round_trips_through_text() -> None:
    assert from_json(json.loads(json.dumps(to_json(REPORT), allow_nan=False))) == REPORT
    without_gpu = dataclasses.replace(REPORT, gpu=None, findings=())
    assert from_json(json.loads(json.dumps(to_json(without_gpu)))) == without_gpu


def test_messages_are_sentences_and_come_back_as_messages() -> None:
    full = message("out_of_memory")
    (finding, *_) = REPORT.findings
    gain = Gain(1, 2, 3, full)
    said = dataclasses.replace(finding, cause=full, change=full, predicted_gain=gain)
    report = dataclasses.replace(REPORT, findings=(said,), notices=(full, verbatim("two")))

    value = json.loads(json.dumps(to_json(report), allow_nan=False))

    assert value["findings"][0]["cause"] == value["notices"][0] == "out of memory"
    pointers = [f"/findings/0/{name}" for name in ("cause", "change", "predicted_gain/method")]
    said = [pointer for pointer, fact in value["facts"].items() if fact["id"] != VERBATIM]
    assert said == [*pointers, "/notices/0"] and from_json(value) == report
    assert all(fact["id"] == VERBATIM for fact in to_json(REPORT)["facts"].values())


def test_the_agreed_keys_come_first_and_in_order() -> None:
    value = to_json(REPORT)

    assert list(value)[:8] == ["schema", "run", "throughput", "phases", "gpu", "verdict", "findings", "overhead"]
    assert list(value["run"]) == ["id", "argv", "exit_code", "steps", "wall_s", "ranks", "device", "torch", "python"]
    assert list(value["throughput"]) == ["steps_per_s", "samples_per_s"]
    assert list(value["phases"]) == list(PHASES) and list(value["phases"]["data"]) == ["share", "ms"]
    gpu = ["starved_share", "util_mean", "util_spread", "power_share", "sm_active", "tensor_active", "memory_peak"]
    assert list(value["gpu"])[:7] == gpu
    assert list(value["verdict"])[:3] == ["bound", "healthy", "sentence"]
    finding = [
        "code",
        "family",
        "title",
        "severity",
        "location",
        "evidence",
        "cause",
        "remedy",
        "change",
        "predicted_gain",
    ]
    assert list(value["findings"][0])[:10] == finding
    assert list(value["findings"][0]["predicted_gain"]) == ["low", "mid", "high", "method"]
    assert list(value["overhead"]) == ["us_per_step", "share"]


def test_a_verdict_of_an_older_flatout_has_no_grounds() -> None:
    value = to_json(REPORT)
    del value["verdict"]["grounds"]

    assert from_json(value).verdict == dataclasses.replace(REPORT.verdict, grounds=None)


def test_what_is_not_a_number_is_null() -> None:
    report = dataclasses.replace(
        REPORT, throughput=Throughput(math.nan, math.inf), environment={"x": [math.nan], "p": HERE}
    )

    value = to_json(report)

    assert value["throughput"] == {"steps_per_s": None, "samples_per_s": None}
    assert value["environment"]["x"] == [None]
    json.dumps(value, allow_nan=False)


def test_additions_of_a_newer_flatout_are_left_out_and_another_schema_refused() -> None:
    value = to_json(REPORT)
    value["run"]["invented"] = value["invented"] = 1
    assert from_json(value) == REPORT

    with pytest.raises(FlatoutError, match="schema 2"):
        from_json({**value, "schema": 2})

"""What other tools say of a script, and whether that names what was planted in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import verdicts
from benchmarks.common.corpus import Script
from benchmarks.common.scoring import Outcome, Share
from benchmarks.detection import page

INPUT = Script("in101_plain", Path("in101_plain.py"), ("IN101",), "either")
CONFIG = Script("cf801_argument", Path("cf801_argument.py"), ("CF801", "IN101"), "either")
CONTROL = Script("control_tensors", Path("control_tensors.py"), (), "cpu")


def issue(kind: str, status: str, severity: str) -> dict[str, str]:
    return {"kind": kind, "status": status, "severity": severity}


def summary(primary: dict[str, str], **sections: dict[str, str]) -> dict[str, Any]:
    """As TraceML 0.5 writes it; a section that has found nothing says so in an issue of its own."""
    normal = issue("NORMAL", "NORMAL", "info")
    names = ("step_time", "step_memory", "process", "system")
    return {"primary_diagnosis": primary, **{name: {"issues": [sections.get(name, normal)]} for name in names}}


def test_gpuprof_is_quoted_without_hints_that_name_nothing() -> None:
    printed = (
        "epoch 1\n"
        "verdict: high: 42% of step time waiting on the loader (inter-step gap)\n"
        "verdict: low: 31% of step unaccounted (kernel-launch / Python overhead)\n"
        "verdict: low: Step 0 = 90 ms vs 4 ms steady-state\n"
    )

    assert verdicts.said(printed) == (
        "high: 42% of step time waiting on the loader (inter-step gap)"
        "; low: 31% of step unaccounted (kernel-launch / Python overhead)"
    )
    assert verdicts.said("verdict: low: No major bottlenecks detected\n") == "nothing"
    assert verdicts.said("") == "nothing"


def test_traceml_is_quoted_with_what_its_sections_warn_of_each_once() -> None:
    bound = issue("INPUT_BOUND", "INPUT-BOUND", "crit")
    crowded = issue("HIGH_CPU", "HIGH CPU", "warn")

    assert verdicts.diagnosed(summary(bound, step_time=bound, system=crowded)) == "crit: INPUT-BOUND; warn: HIGH CPU"


def test_traceml_without_steps_has_no_verdict_but_keeps_its_warnings() -> None:
    nothing = issue("INSUFFICIENT_STEP_TIME_DATA", "INSUFFICIENT STEP-TIME DATA", "info")
    creep = issue("CREEP_CONFIRMED", "MEMORY CREEP", "warn")

    said = verdicts.diagnosed(summary(nothing, step_memory=creep))

    assert said == "no verdict: INSUFFICIENT STEP-TIME DATA; warn: MEMORY CREEP"
    assert verdicts.families(said) == {"ME"}


@pytest.mark.parametrize(
    ("verdict", "named"),
    [
        ("high: Dataloader stall + CPU pegged (97% avg across 2 cores) — workers are CPU-bound", {"IN"}),
        ("medium: MFU 12.0% of 989 TFLOPs bf16 peak", {"CO"}),
        ("low: Estimated cost: $0.01 (1 min · $2.00/h); ~$0.01 of that is idle capacity (MFU 12.0%)", set()),
        ("medium: PCIe RX peaked at 24.0 GB/s (bandwidth-bound territory)", {"TR"}),
        ("crit: INPUT STRAGGLER", {"IN", "RA"}),
        ("warn: RESIDUAL-HEAVY", {"CA", "HO", "SY"}),
        ("warn: H2D-BOUND", {"TR"}),
        ("info: COMPUTE-BOUND", {"CO"}),
        ("warn: HIGH CPU", set()),
        ("info: NO CLEAR PERFORMANCE BOTTLENECK", set()),
        ("no verdict: INSUFFICIENT STEP-TIME DATA", set()),
        ("no verdict: exit 1", set()),
        ("nothing", set()),
    ],
)
def test_words_name_families(verdict: str, named: set[str]) -> None:
    assert verdicts.families(verdict) == named


def test_a_tally_counts_hints_as_naming_but_not_as_alarms() -> None:
    said = [
        (INPUT, "crit: INPUT-BOUND"),
        (CONFIG, "warn: INPUT-BOUND"),
        (INPUT, "info: COMPUTE-BOUND"),
        (CONTROL, "info: COMPUTE-BOUND"),
        (CONTROL, "warn: RESIDUAL-HEAVY"),
        (CONTROL, "no verdict: exit 1"),
    ]
    outcomes = [Outcome(script, (), peers=(("traceml", verdict),)) for script, verdict in said]
    not_asked = Outcome(INPUT, (), failure="planted: exit 1")

    counted = verdicts.tally("traceml", [*outcomes, not_asked])

    assert counted == verdicts.Tally(right=Share(2, 3), alarms=Share(1, 3), no_verdict=Share(1, 6))
    assert "| traceml | 2 of 3 (67%) | 1 of 3 (33%) | 1 of 6 (17%) |" in page(outcomes, ["traceml"])

"""The ladder in the terminal, on the page of a run, in the verdict and in JSON."""

from __future__ import annotations

import html as escaping
import json
import re
from dataclasses import replace

import pytest

from flatout.diagnose.verdict import judge_costs, removable, with_findings, with_speed
from flatout.records.report import Cost, Grounds, Ladder, Rung, RunReport
from flatout.records.roofline import Roofline
from flatout.report.html.page import draw_page
from flatout.report.html.run_page import RunMaterial, run_page
from flatout.report.json import from_json, to_json
from flatout.report.layout import Look
from flatout.report.terminal import render
from flatout.words import english
from flatout.words.verdict import verdict_in_chinese, verdict_sentence
from tests.unit.report.test_kernels import GPU, RECORDED

ROOFLINE = Roofline("NVIDIA H200", {"tf32": 413.0, "bfloat16": 789.0}, 4200.0, 8.0, "measured", "2.11.0")
LADDER = Ladder(
    flops=3.15e12,
    tflops_per_s=51.6,
    mfu=0.104,
    peak_source="data sheet",
    precision="tf32",
    gb_per_s=2310.0,
    roofline=ROOFLINE,
    rungs=(
        Rung("step", 61.0),
        Rung("busy", 59.2),
        Rung("kernels", 24.5),
        Rung("precision", 14.1),
        Rung("limit", 3.99),
    ),
)
CLIMBED = replace(RECORDED, gpu=replace(GPU, ladder=LADDER))


def _section(report: RunReport, language: str) -> str:
    page = draw_page(run_page(RunMaterial(report)), language)
    found = re.search(r'<section class="panel" id="ladder".*?</section>', page, flags=re.DOTALL)
    if found is None:
        return ""
    hidden = {"en": "zh", "zh": "en"}[language]
    section = re.sub(rf'<span class="in-{hidden}".*?</span>', "", found[0], flags=re.DOTALL)
    return " ".join(escaping.unescape(re.sub(r"<[^>]+>", " ", section)).split())


def test_the_terminal_says_what_is_reached_and_each_rung() -> None:
    lines = render(CLIMBED, Look(width=100)).splitlines()

    (peak,) = [line for line in lines if line.startswith(" Peak")]
    assert peak.split(maxsplit=1)[1] == "MFU 10% in tf32 by the data sheet · 51.6 TFLOP/s · 2,310 GB/s asked for"
    said = " ".join(" ".join(lines).replace("·", " ").split())
    assert "Ladder as it is 61.0 ms without waits 59.2 ms best kernels 24.5 ms half precision 14.1 ms" in said
    assert "arithmetic alone 3.99 ms" in said


@pytest.mark.parametrize("width", [50, 72, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(len(line) for line in render(CLIMBED, Look(width=width)).splitlines()) <= width


def test_the_page_shows_it_in_both_languages() -> None:
    words = _section(CLIMBED, "en")
    assert "reaches 10% of the peak for tf32 (by the data sheet): 51.6 TFLOP/s" in words
    assert "as it is 61.0 ms without waits 59.2 ms best kernels 24.5 ms" in words
    chinese = _section(CLIMBED, "zh")
    assert "达到 tf32 峰值的 10%（按规格书）" in chinese and "只算运算 3.99 ms" in chinese


def test_nothing_is_said_where_it_is_not_known() -> None:
    assert "Ladder" not in render(RECORDED) and _section(RECORDED, "en") == ""


def test_json_has_it_and_reads_it_again() -> None:
    value = json.loads(json.dumps(to_json(CLIMBED)))

    assert value["gpu"]["ladder"]["rungs"][0] == {"name": "step", "ms": 61.0}
    again = from_json(value)
    assert again.gpu is not None and again.gpu.ladder == LADDER


def test_the_verdict_tells_busy_from_fast() -> None:
    grounds = Grounds(True, 61.0, 0.97, (), mfu=0.104, moving_share=0.41)

    assert english(verdict_sentence(grounds, False)) == (
        "The GPU computes for 97% of each 61 ms step at 10% of its peak; kernels that wait for memory take 41% of it."
    )
    both = verdict_sentence(replace(grounds, costs=(Cost("sync", 0.07),)), False)
    assert "at 10% of its peak; kernels that wait for memory take 41% of it; waiting" in english(both)


def test_the_verdict_of_a_run_that_computes_has_what_it_reaches() -> None:
    costs = removable(CLIMBED.phases, None, on_gpu=False)
    judged = judge_costs(replace(costs, input=0.0, transfer=0.0, sync=0.0, host=0.0, cadence=0.0), 61.0, on_gpu=True)
    spoken = with_speed(judged, CLIMBED.gpu)

    assert spoken.bound == "compute" and spoken.grounds is not None
    # Norms and copies of the recorded kernels: 14.4 of 59.2 ms.
    assert spoken.grounds.mfu == 0.104 and spoken.grounds.moving_share == pytest.approx(14.4 / 59.2)
    assert "峰值的 10%" in (verdict_in_chinese(spoken) or "")
    assert with_findings(spoken, []).grounds == spoken.grounds


def test_a_run_that_waits_is_not_told_what_it_reaches() -> None:
    costs = removable(CLIMBED.phases, None, on_gpu=False)
    waits = judge_costs(replace(costs, input=0.6, transfer=0.0, sync=0.0, host=0.0, cadence=0.0), 61.0, on_gpu=True)

    assert with_speed(waits, CLIMBED.gpu) == waits

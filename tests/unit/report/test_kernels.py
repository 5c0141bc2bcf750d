"""The kernels of a step in the terminal, on the page of a run, and in JSON."""

from __future__ import annotations

import html as escaping
import json
import re
from dataclasses import replace

import pytest

from flatout.records.report import GpuUse, KernelLine, KernelShare, KernelUse, Location, PhaseShare, RunReport
from flatout.report.html.page import draw_page
from flatout.report.html.run_page import RunMaterial, run_page
from flatout.report.json import from_json, to_json
from flatout.report.layout import Look
from flatout.report.overview import kernel_kinds
from flatout.report.terminal import render
from flatout.words import chinese, english
from tests.unit.report.test_terminal import HEALTHY

KERNELS = KernelUse(
    busy_ms=59.2,
    count=1851.0,
    # They add up to more than the busy time: some ran beside each other.
    kinds=(
        KernelShare("gemm", 400.0, 32.0, 30.0),
        KernelShare("layout", 90.0, 16.0),
        KernelShare("normalisation", 80.0, 12.0),
        KernelShare("copy", 30.0, 2.4),
        KernelShare("other", 3.0, 1.2),
        KernelShare("optimizer", 3.0, 0.4),
    ),
    lines=tuple(
        KernelLine(Location("/proj/model.py", 70 + number), "forward", phase, 10.0, 20.0 - number)
        for number, phase in enumerate(("backward", "forward", "", *["optimizer"] * 9))
    ),
)
GPU = GpuUse(util_mean=98.0, busy_share=0.971, kernels=KERNELS)
RECORDED = replace(HEALTHY, gpu=GPU)


def _kernel_lines(drawn: str) -> list[str]:
    """The line "Kernels" and those that continue it."""
    lines = drawn.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(" Kernels"))
    more = next(number for number, line in enumerate(lines[at + 1 :]) if not line.startswith(" " * 10))
    return lines[at : at + 1 + more]


def _words(report: RunReport, language: str) -> str:
    """What a reader of the page in one language sees of the section, tags taken out."""
    page = draw_page(run_page(RunMaterial(report)), language)
    found = re.search(r'<section class="panel" id="kernels".*?</section>', page, flags=re.DOTALL)
    if found is None:
        return ""
    hidden = {"en": "zh", "zh": "en"}[language]
    section = re.sub(rf'<span class="in-{hidden}".*?</span>', "", found[0], flags=re.DOTALL)
    return " ".join(escaping.unescape(re.sub(r"<[^>]+>", " ", section)).split())


def test_the_terminal_names_the_busy_time_and_the_largest_kinds() -> None:
    drawn = render(RECORDED, Look(width=80))

    assert _kernel_lines(drawn) == [
        " Kernels     busy 59.2 ms per step (97%) · matrix products 50%",
        "             layout changes 25% · normalisation 19% · other 6%",
    ]
    assert drawn.index("\n GPU ") < drawn.index("\n Kernels ") < drawn.index("\n Overhead ")


def test_more_words_tell_every_kind_that_counts_and_how_many_kernels() -> None:
    said = " ".join(" ".join(_kernel_lines(render(RECORDED, Look(verbose=True)))).split())

    assert "1,851 kernels" in said and "copies 4%" in said and said.endswith("other 3%")


@pytest.mark.parametrize("width", [50, 60, 72, 80, 120])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_is_wider_than_the_terminal(width: int, unicode: bool) -> None:
    drawn = render(RECORDED, Look(width=width, unicode=unicode))

    assert max(len(line) for line in drawn.splitlines()) <= width
    assert "matrix products 50%" in drawn and "normalisation 19%" in drawn


def test_shares_are_told_in_both_languages() -> None:
    shares = kernel_kinds(KERNELS)

    assert [english(kind) for kind, _ in shares] == ["matrix products", "layout changes", "normalisation", "other"]
    assert [chinese(kind) for kind, _ in shares] == ["矩阵乘法", "布局转换", "归一化", "其他"]
    assert sum(share for _, share in shares) == pytest.approx(1.0)
    assert kernel_kinds(KernelUse(0.0, 0.0)) == []


def test_the_page_has_all_kinds_and_the_lines_that_launch_most() -> None:
    words = _words(RECORDED, "en")

    assert "busy for 59.2 ms (97% of the mean step), with 1,851 kernels" in words
    assert "kind of kernel share per step matrix products 50% 32.0 ms layout changes 25% 16.0 ms" in words
    assert words.index("copies 4% 2.40 ms") < words.index("other 2% 1.20 ms") < words.index("optimizer 1% 0.40 ms")
    assert "/proj/model.py:70 backward 20.0 ms" in words and "/proj/model.py:72 – 18.0 ms" in words
    assert "/proj/model.py:77" in words and "/proj/model.py:78" not in words, "the first eight"


def test_the_page_is_chinese_too() -> None:
    words = _words(RECORDED, "zh")

    assert "设备忙碌 59.2 ms（平均每步的 97%），运行 1,851 个核函数" in words
    assert "矩阵乘法 50% 32.0 ms" in words and "发射的设备时间最多的代码行" in words
    assert not re.search("matrix|normalisation|kernel|launch", words)


def test_kernels_without_lines_have_no_table_of_lines() -> None:
    words = _words(replace(RECORDED, gpu=replace(GPU, kernels=replace(KERNELS, lines=()))), "en")

    assert "matrix products 50%" in words and "Lines that launch" not in words


def test_nothing_is_said_where_no_step_was_recorded() -> None:
    for gpu in (None, replace(GPU, kernels=None)):
        report = replace(RECORDED, gpu=gpu)

        assert "Kernels" not in render(report) and _words(report, "en") == ""


def test_a_run_that_makes_its_batches_itself_lacks_no_starvation() -> None:
    phases = {**HEALTHY.phases, "data": PhaseShare(0.0, 0.0)}
    no_loader = replace(RECORDED, phases=phases)

    assert "starved not measured" in render(RECORDED) and "starved" not in render(no_loader)
    assert "starved" in draw_page(run_page(RunMaterial(RECORDED))).partition("<script")[0]
    body = draw_page(run_page(RunMaterial(no_loader))).partition("<main>")[2].partition("</main>")[0]
    assert "starved" not in body


def test_json_has_them_and_reads_them_again() -> None:
    value = json.loads(json.dumps(to_json(RECORDED)))

    assert value["gpu"]["kernels"]["kinds"][0] == {
        "kind": "gemm",
        "count": 400.0,
        "ms": 32.0,
        "tensor_core_ms": 30.0,
        "float64_ms": 0.0,
    }
    assert from_json(value).gpu == GPU

"""What a page says in Chinese of the run itself: the verdict, the findings, the proof, and common sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import pytest

from flatout.diagnose.verdict import make_checklist
from flatout.experiment.statistics.ceiling import measure_ceiling
from flatout.experiment.statistics.quality import judge_envelope, judge_identity, judge_metric
from flatout.records.message import verbatim
from flatout.records.report import Cost, Finding, Gain, Grounds, SourceSide, Unmeasured
from flatout.records.trial import Trial
from flatout.report.html.fix_page import FixMaterial, fix_page
from flatout.report.html.page import draw_page, show, show_verdict
from flatout.report.html.run_page import RunMaterial, run_page
from flatout.words import chinese, chinese_if_known, english
from flatout.words.render import problem_words
from tests.cases.evidence import on_gpu
from tests.cases.evidence import run as evidence_of
from tests.unit.report.test_fix import FIX
from tests.unit.report.test_html_page import HERE
from tests.unit.report.test_terminal import STARVED

FOUND = Finding(
    "IN101",
    "input",
    "Batches are made",
    "high",
    HERE,
    {},
    verbatim("it takes 47 ms"),
    "x",
    verbatim("num_workers=2"),
    Gain(1.2, 1.5, 2, verbatim("m")),
)
VERDICT = replace(STARVED.verdict, grounds=Grounds(True, 103.7, None, (Cost("input", 0.61),)))


def _seen(html: str, language: str) -> str:
    """What a reader sees in a language: what is hidden in it is taken out, innermost first, and then all tags."""
    body = html[html.index("<main>") : html.index("</main>")]
    hidden = "zh" if language == "en" else "en"
    for tag in ("span", "p"):
        body = re.sub(
            rf'<{tag} class="(?:\w+ )?in-{hidden}"[^>]*>(?:(?!<{tag}\b).)*?</{tag}>', "", body, flags=re.DOTALL
        )
    return " ".join(re.sub(r"<[^>]+>", "", body).split())


def _figures(text: str) -> list[str]:
    return re.findall(r"\d[\d.]*", text)


def test_a_finding_has_the_catalogues_words_and_below_them_its_own() -> None:
    html = draw_page(run_page(RunMaterial(replace(STARVED, verdict=VERDICT, findings=(FOUND,)))), "zh")

    chinese, english = _seen(html, "zh"), _seen(html, "en")
    words = problem_words()["IN101"]
    for said in (words.title.chinese, words.what_it_is, words.what_to_do):
        assert said.replace("`", "") in chinese and said.replace("`", "") not in english
    assert "本次运行：It takes 47 ms." in chinese and "本次运行：num_workers=2" in chinese
    assert "IN101 Batches are made ×1.20 to ×2.00 It takes 47 ms. Change num_workers=2" in english
    assert "GPU 等待数据的时间占每步的 61%（63.3 / 104 ms）。" in chinese and "×1.20 至 ×2.00" in chinese


def test_advice_is_there_also_where_the_run_has_no_change_of_its_own() -> None:
    html = draw_page(run_page(RunMaterial(replace(STARVED, findings=(replace(FOUND, change=None),)))))

    advice = problem_words()["IN101"].what_to_do.replace("`", "")
    assert advice in _seen(html, "zh") and advice not in _seen(html, "en")


def test_what_only_the_source_shows_has_its_title() -> None:
    source = SourceSide(1, 0, (Unmeasured("TR201", "Batches are copied", HERE),), "train.py")

    html = draw_page(run_page(RunMaterial(replace(STARVED, source=source))))

    assert problem_words()["TR201"].title.chinese in _seen(html, "zh") and "Batches are copied" not in _seen(html, "zh")


def test_a_problem_of_another_flatout_keeps_its_own_words() -> None:
    html = draw_page(run_page(RunMaterial(replace(STARVED, findings=(replace(FOUND, code="XX999"),)))))

    assert "XX999 Batches are made" in _seen(html, "zh") and "It takes 47 ms." in _seen(html, "zh")
    assert show_verdict(STARVED.verdict) == f'<span lang="en">{english(STARVED.verdict.sentence)}</span>'


def test_the_fix_is_told_in_chinese() -> None:
    html = draw_page(fix_page(FixMaterial(replace(FIX, verdict=VERDICT), (), None, None, "fix")), "zh")

    seen = _seen(html, "zh")
    for said in ("340 → 1,037 样本/秒", "距上限已不足 5%", "无损", "120 步的损失逐位一致", "1,037 样本/秒"):
        assert said in seen, said
    assert "samples/s" not in seen and "GPU 等待数据" in seen


def _trial(losses: Sequence[float], **more: object) -> Trial:
    return Trial("a", {}, "stopped", step_s=(0.1,) * 40, samples=(32.0,) * 40, losses=tuple(losses), **more)  # type: ignore[arg-type]


FALLING = [2.0 - 0.01 * n for n in range(80)]


def _near(by: float) -> list[float]:
    return [loss + by * (-1) ** n for n, loss in enumerate(FALLING)]


def test_bits_are_compared_with_the_same_figures_in_both() -> None:
    same = [_trial(FALLING, weights="w", steps=80), _trial(FALLING, weights="w", steps=80)]
    cases = [
        same[0],
        replace(same[0], weights=None),
        replace(same[0], weights="v"),
        _trial([*FALLING[:40], *_near(0.1)[40:]]),
    ]

    for changed in cases:
        found = judge_identity(same, changed)
        assert _figures(chinese(found.sentence)) == _figures(english(found.sentence)), found


def test_so_are_envelope_and_metric() -> None:
    inside = judge_envelope([_trial(_near(0.01)), _trial(_near(0.02)), _trial(_near(-0.01))], [_trial(_near(0.012))])
    bare = [replace(_trial(FALLING), metric=value) for value in (0.5, 0.51, 0.49)]
    better = judge_metric(bare, [replace(bare[0], metric=0.52)], higher_is_better=True)
    always = judge_metric([bare[0], bare[0]], [bare[0]], higher_is_better=True)
    worse = judge_metric(bare, [replace(bare[0], metric=0.1)], higher_is_better=True)

    assert (inside.verdict, better.verdict, always.verdict, worse.verdict) == ("inside", "inside", "inside", "worse")
    for found in (inside, better, always, worse):
        assert _figures(chinese(found.sentence)) == _figures(english(found.sentence))


@pytest.mark.parametrize("with_feed", [True, False])
def test_and_the_ceiling(with_feed: bool) -> None:
    achieved, device = [_trial(FALLING)] * 2, [replace(_trial(FALLING), step_s=(0.05,) * 40)] * 2

    found = measure_ceiling(achieved, device, [replace(device[0], step_s=(0.04,) * 40)] * 2 if with_feed else [])

    assert found is not None
    told, translated = english(found.sentence), chinese(found.sentence)
    assert sorted(_figures(translated)) == sorted(_figures(told)) and ("未测量" in translated) != with_feed


def test_figures_of_the_checklist_are_all_known() -> None:
    checks = chain(make_checklist(evidence_of()), make_checklist(evidence_of(gpu=on_gpu())))

    spoken = [show(check.figure) for check in checks if re.search("[a-z]{3}", english(check.figure))]

    assert spoken and all("in-zh" in words for words in spoken), spoken


def test_messages_have_chinese_and_the_sentences_of_an_older_flatout_keep_their_english() -> None:
    unrepeatable = judge_identity([_trial(FALLING), _trial(_near(0.1))], _trial(_near(0.2))).sentence
    assert (
        chinese_if_known(unrepeatable)
        == "脚本原样再跑一次从第 1 步起就不同，因此无法要求逐位一致（使用措施后从第 1 步起不同）"
    )
    assert chinese_if_known("a worker was killed") is None and chinese_if_known("") is None
    assert show(verbatim("a worker was killed")) == "a worker was killed"

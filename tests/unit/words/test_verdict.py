"""A verdict's sentence in both languages: other words, the same figures in the same order."""

from __future__ import annotations

import re
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.diagnose.verdict import judge_bound, with_findings
from flatout.records.message import verbatim
from flatout.records.report import PHASES, Bound, Cost, Finding, Gain, GpuUse, Grounds, PhaseShare, Verdict
from flatout.words.render import english
from flatout.words.verdict import verdict_in_chinese, verdict_sentence

CAUSES: tuple[Bound, ...] = ("input", "transfer", "sync", "host", "cadence")
_PAIRS: list[tuple[Bound, ...]] = [*((one,) for one in CAUSES), *permutations(CAUSES, 2)]
GAINS = Finding("IN101", "input", "t", "high", None, {}, verbatim("c"), None, None, Gain(1.1, 1.2, 1.3, verbatim("m")))


def _figures(sentence: str) -> list[str]:
    return re.findall(r"\d[\d,.]*\d%?|\d%?", sentence)


def _spoken(judged: Verdict) -> str:
    chinese = verdict_in_chinese(judged)
    assert chinese is not None
    return chinese


@pytest.mark.parametrize("on_gpu", [True, False])
@pytest.mark.parametrize("causes", _PAIRS)
@pytest.mark.parametrize("step_ms", [0.0123, 61.0, 1163.0])
def test_every_cause_is_said_with_the_same_figures(on_gpu: bool, causes: tuple[Bound, ...], step_ms: float) -> None:
    costs = tuple(Cost(cause, 0.31 + 0.1 * place) for place, cause in enumerate(causes))
    grounds = Grounds(on_gpu, step_ms, None, costs)

    said = english(verdict_sentence(grounds, False))
    chinese = _spoken(Verdict(causes[0], False, verbatim(said), grounds))

    assert _figures(said) == _figures(chinese) and len(_figures(said)) == 3 * len(causes)
    assert chinese.endswith("。") and not re.search("[;,.] ", chinese)
    assert ("GPU" in said) == ("GPU" in chinese)


@pytest.mark.parametrize("on_gpu", [True, False])
@pytest.mark.parametrize("healthy", [True, False])
@pytest.mark.parametrize("costs", [(), (Cost("sync", 0.07),)])
@pytest.mark.parametrize("mfu", [None, 0.31])
def test_so_is_computing(on_gpu: bool, healthy: bool, costs: tuple[Cost, ...], mfu: float | None) -> None:
    grounds = Grounds(on_gpu, 50.0, 0.93, costs, mfu=mfu)

    said = english(verdict_sentence(grounds, healthy))
    chinese = _spoken(Verdict("compute", healthy, verbatim(said), grounds))

    assert _figures(said) == _figures(chinese) and "93%" in chinese
    assert ("nothing worth fixing" in said) == ("值得修复的问题" in chinese) == healthy
    # Of a GPU nobody has looked at, nothing more can be said.
    is_open = healthy and on_gpu and mfu is None
    assert ("was not recorded" in said) == ("没有记录" in chinese) == is_open


def test_the_sentences_as_they_are_read() -> None:
    data = Verdict("input", False, verbatim(""), Grounds(True, 103.7, None, (Cost("input", 0.61),)))
    both = Verdict(
        "balanced", False, verbatim(""), Grounds(False, 50.0, None, (Cost("cadence", 0.3), Cost("host", 0.28)))
    )
    fine = Verdict("compute", True, verbatim(""), Grounds(False, 50.0, 0.97, ()))

    assert _spoken(data) == "GPU 等待数据的时间占每步的 61%（63.3 / 104 ms）。"
    assert _spoken(both) == (
        "评估、检查点与日志的时间占每步的 30%（15 / 50 ms），同时脚本的其他工作占每步的 28%（14 / 50 ms）。"
    )
    assert _spoken(fine) == "CPU 有 97% 的时间在计算，每步 50 ms；没有值得修复的问题。"


def test_no_step_is_said_too() -> None:
    judged = judge_bound({}, None, None, on_gpu=False)

    assert "No training step" in english(judged.sentence) and "没有看到任何训练步" in _spoken(judged)


def test_the_record_of_an_older_flatout_has_its_own_words_only() -> None:
    assert verdict_in_chinese(Verdict("input", False, verbatim("The GPU waits."))) is None


def test_a_finding_takes_the_health_out_of_both() -> None:
    phases = {name: PhaseShare(float(name == "forward"), 50.0 * (name == "forward")) for name in PHASES}
    healthy = judge_bound(phases, 50.0, None, on_gpu=False)

    judged = with_findings(healthy, [GAINS])

    assert healthy.healthy and "没有值得" in _spoken(healthy) and with_findings(healthy, []) == healthy
    assert (judged.bound, judged.healthy) == ("compute", False)
    assert english(judged.sentence) == "The CPU computes for 100% of each 50 ms step."
    assert _spoken(judged) == "CPU 有 100% 的时间在计算，每步 50 ms。"


@given(
    st.lists(st.floats(0.0, 1.0), min_size=len(PHASES), max_size=len(PHASES)).filter(lambda v: sum(v) > 0.1),
    st.floats(1e-3, 1e6),
    st.none() | st.floats(0, 1),
    st.none() | st.floats(0, 1),
    st.booleans(),
)
def test_any_run_is_judged_in_both_alike(
    weights: list[float], step_ms: float, starved: float | None, drained: float | None, on_gpu: bool
) -> None:
    total = sum(weights)
    phases = {name: PhaseShare(w / total, w / total * step_ms) for name, w in zip(PHASES, weights, strict=True)}

    judged = judge_bound(phases, step_ms, GpuUse(starved_share=starved, drained_share=drained), on_gpu)

    assert _figures(english(judged.sentence)) == _figures(_spoken(judged))

"""The catalogue over source: what is chosen, what comments silence, what a broken detector costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flatout.diagnose.source_check import check_project, select_problems
from flatout.errors import FlatoutError
from flatout.problems.catalogue import find_problem
from flatout.records.source import SYNTAX, UNUSED, CheckReport, SourceFinding
from flatout.source.code import Code
from flatout.source.project.loading import load_texts
from flatout.words import english

STEP = (
    "for x in loader:\n    loss = model(x.to(device, non_blocking=True))\n    loss.backward()\n    optimizer.step()\n"
)


def checked(text: str, select: tuple[str, ...] = ()) -> CheckReport:
    return check_project(load_texts({"train.py": text}), select_problems(select, ()))


def found(report: CheckReport) -> list[tuple[str, int]]:
    return [(one.code, one.place.line) for one in report.findings]


def test_codes_beginnings_and_names_are_understood() -> None:
    assert {one.code for one in select_problems(["SY"], ["SY304"])} == {"SY301", "SY302", "SY303", "SY305"}
    assert [one.code for one in select_problems(["no-workers"], [])] == ["IN101"]
    assert len(select_problems([], [])) == len(select_problems(["ALL"], [])) >= 10


@pytest.mark.parametrize("word", ["XX", "sy999", ""])
def test_what_is_no_problem_is_said(word: str) -> None:
    with pytest.raises(FlatoutError, match="no problem is called"):
        select_problems([word], [])


def test_a_comment_silences_its_line() -> None:
    assert found(checked(STEP + "    a = loss.item()\n")) == [("SY301", 5)]
    assert found(checked(STEP + "    a = loss.item()  # flatout: ignore[SY301]\n")) == []
    assert found(checked(STEP + "    a = loss.item()  # flatout: ignore\n")) == []
    assert found(checked(STEP + "    a = loss.item()  # flatout: ignore[SY, IN101]\n")) == [(UNUSED, 5)]
    assert found(checked(STEP + "    a = (loss\n      .item())  # flatout: ignore[SY301]\n")) == []


def test_comments_that_silence_nothing_are_reported() -> None:
    assert found(checked("x = 1  # flatout: ignore[SY301]\n")) == [(UNUSED, 1)]
    assert found(checked("x = 1  # flatout: ignore\n")) == [(UNUSED, 1)]
    assert found(checked("x = 1  # flatout: ignore[ZZ999]\n")) == [(UNUSED, 1)]
    assert found(checked('x = "# flatout: ignore[SY301]"\n')) == []
    # One that was not looked for may well be needed.
    assert found(checked("x = 1  # flatout: ignore[SY301]\n", select=("IN101",))) == []


def test_a_syntax_error_is_one_finding() -> None:
    report = check_project(
        load_texts({"a.py": "def f(:\n", "b.py": STEP + "    a = loss.item()\n"}), select_problems((), ())
    )

    assert [(one.code, one.place.file) for one in report.findings] == [(SYNTAX, "a.py"), ("SY301", "b.py")]
    assert report.lines["b.py", None, 5] == "    a = loss.item()"


def test_long_sums_and_deep_nests_are_gone_through() -> None:
    text = (
        STEP
        + "    a = loss.item()\n    b = "
        + " + ".join(["loss"] * 2500)
        + "\n    c = "
        + "f(" * 80
        + ")" * 80
        + "\n"
    )

    report = checked(text)

    assert not report.trouble
    assert ("SY301", 5) in found(report)


def test_a_detector_that_fails_costs_its_own_findings_only() -> None:
    def failing(code: Code) -> list[SourceFinding]:
        raise RuntimeError("broken")

    report = check_project(
        load_texts({"train.py": STEP + "    a = loss.item()\n"}),
        [replace(find_problem("IN101"), in_source=failing), find_problem("SY301")],
    )

    assert [one.code for one in report.findings] == ["SY301"]
    assert tuple(map(english, report.trouble)) == ("IN101 could not be judged (RuntimeError: broken)",)


def test_one_default_that_feeds_two_loaders_is_one_finding() -> None:
    text = "parser.add_argument('--workers', type=int, default=0)\n"
    text += "a = DataLoader(Images(), num_workers=args.workers, pin_memory=True)\n"
    text += "b = DataLoader(Images(), num_workers=args.workers, pin_memory=True)\n" + STEP

    (one,) = checked(text).findings

    assert one.code == "IN101" and [other.place.line for other in one.related] == [2, 3]

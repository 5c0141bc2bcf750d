"""The labels are sound, and the comparison with them counts what it says."""

from __future__ import annotations

import pytest

from benchmarks.check_accuracy import FileScore, Said, controls, page, precision, recall, score
from benchmarks.common.labels import (
    HALVES,
    Expected,
    Judged,
    LabelledFile,
    LabelledPackage,
    Quiet,
    Spot,
    digest,
    read,
    settled,
)
from flatout.problems.catalogue import problems

LABELS = read()
LINES = [
    "for x, y in loader:",
    "    x = x.to(device)",
    "    total += loss.item()",
    "",
    "    if step % 100 == 0:",
    "        print(loss.item())",
]
EXPECTED = Expected(Spot(3, digest(LINES[2])), ("SY301",), "loss read every step")
QUIET = Quiet(Spot(6, digest(LINES[5])), (), "behind step % k")
TRUE = Judged(Spot(2, digest(LINES[1])), "TR204", True, "blocks")
FALSE = Judged(Spot(5, digest(LINES[4])), "SY301", False, "a number of the host")
FILE = LabelledFile("train.py", "classification", (EXPECTED,), (QUIET,), (TRUE, FALSE))
PACKAGE = LabelledPackage("example", "1.0", (FILE,))


def said(code: str, line: int) -> Said:
    return Said(code, line, "medium", "a cause")


def scored(*findings: Said, lines: list[str] | None = None) -> FileScore:
    return score(PACKAGE, FILE, lines or LINES, findings)


def test_labels_are_many_and_over_many_fields() -> None:
    files = [file for package in LABELS for file in package.files]
    fields = {file.field for file in files}
    halves = [package.half for package in LABELS]

    assert len(LABELS) >= 25
    assert len(files) >= 60
    assert len(fields) >= 9
    assert min(halves.count(half) for half in HALVES) >= 10


@pytest.mark.parametrize("package", LABELS, ids=lambda package: package.name)
def test_labels_name_known_codes_and_hold_no_foreign_text(package: LabelledPackage) -> None:
    known = {problem.code for problem in problems()}
    for file in package.files:
        for label in file.expected:
            assert label.codes
            assert set(label.codes) <= known
        for control in file.quiet:
            assert set(control.codes) <= known
        for judged in file.judged:
            assert judged.code in known
        every: list[Expected | Quiet | Judged] = [*file.expected, *file.quiet, *file.judged]
        spots = [label.spot for label in every]
        assert all(len(spot.digest) == 8 and spot.line > 0 for spot in spots)
        assert all(not spot.until or spot.until >= spot.line for spot in spots)
        assert all(len(label.why) <= 80 for label in every)


def test_no_line_is_both_an_anti_pattern_and_a_control() -> None:
    for package in LABELS:
        for file in package.files:
            for label in file.expected:
                for control in file.quiet:
                    forbidden = any(control.forbids(code) for code in label.codes)
                    assert not (forbidden and control.spot.holds(label.spot.line)), (package.name, file.path, label)


def test_a_package_is_blind_only_if_its_file_says_so() -> None:
    assert LabelledPackage("example", "1.0", ()).half in ("dev", "heldout")
    assert LabelledPackage("example", "1.0", (), is_blind=True).half == "blind"


def test_a_named_anti_pattern_is_recalled_and_true() -> None:
    result = scored(said("SY301", 3))

    assert result.named == [EXPECTED]
    assert str(recall([result])) == "1 / 1 (100%)"
    assert str(precision([result])) == "1 / 1 (100%)"


def test_another_code_on_the_line_names_nothing() -> None:
    result = scored(said("IN101", 3))

    assert result.missed == [EXPECTED]
    assert result.unjudged == [said("IN101", 3)]


def test_a_finding_on_a_control_disturbs_it_and_is_false() -> None:
    result = scored(said("SY301", 6))

    assert result.disturbed == [(QUIET, said("SY301", 6))]
    assert str(controls([result])) == "0 / 1 (0%)"
    assert str(precision([result])) == "0 / 1 (0%)"


def test_verdicts_are_taken_from_the_labels() -> None:
    result = scored(said("TR204", 2), said("SY301", 5))

    assert result.true == [said("TR204", 2)]
    assert result.false == [(said("SY301", 5), "a number of the host")]
    assert not result.unjudged


def test_labels_follow_lines_that_have_moved() -> None:
    result = scored(said("SY301", 5), lines=["import torch", "", *LINES])

    assert result.named == [EXPECTED]


def test_a_line_that_is_gone_is_said() -> None:
    with pytest.raises(SystemExit, match="line 3 is not what was labelled"):
        scored(lines=[*LINES[:2], *LINES[3:]])


def test_the_nearest_of_equal_lines_is_taken() -> None:
    spot = settled(Spot(5, digest("same"), until=6, others=(9,)), ["same", "", "", "same", "x"])

    assert spot == Spot(4, digest("same"), 5, (8,))


def test_a_statement_and_its_other_places_hold() -> None:
    spot = Spot(10, "0" * 8, until=12, others=(30,))

    assert [line for line in range(1, 40) if spot.holds(line)] == [10, 11, 12, 30]


def test_the_page_names_what_was_missed_and_what_is_false() -> None:
    text = page([scored(said("SY301", 6))], ["absent-1.0"])

    assert "example-1.0/train.py:3 SY301: loss read every step" in text
    assert "example-1.0/train.py:6 SY301: behind step % k" in text
    assert "absent-1.0" in text

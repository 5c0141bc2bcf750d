"""The catalogue over source: what is chosen, what comments silence, what a broken detector costs."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from flatout.diagnose.source_check import Fixed, apply_fixes, check_project, select_problems
from flatout.errors import FlatoutError
from flatout.problems.catalogue import Problem, find_problem
from flatout.problems.found import FoundInSource
from flatout.records.message import verbatim
from flatout.records.source import SYNTAX, UNUSED, CheckReport, Edit, Fix, Place, SourceFinding
from flatout.source.code import Code
from flatout.source.project.loading import load_texts
from flatout.source.syntax.edits import add_keyword, remove_statement, replace_node
from flatout.source.syntax.module import Module
from flatout.words import english

STEP = (
    "for x in loader:\n    loss = model(x.to(device, non_blocking=True))\n    loss.backward()\n    optimizer.step()\n"
)


def checked(text: str, select: tuple[str, ...] = ()) -> CheckReport:
    return check_project(load_texts({"train.py": text}), select_problems(select, ()))


def found(report: CheckReport) -> list[tuple[str, int]]:
    return [(finding.code, finding.place.line) for finding in report.findings]


def test_codes_beginnings_and_names_are_understood() -> None:
    assert {problem.code for problem in select_problems(["SY"], ["SY304"])} == {"SY301", "SY302", "SY303", "SY305"}
    assert [problem.code for problem in select_problems(["no-workers"], [])] == ["IN101"]
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

    assert [(finding.code, finding.place.file) for finding in report.findings] == [(SYNTAX, "a.py"), ("SY301", "b.py")]
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

    assert [finding.code for finding in report.findings] == ["SY301"]
    assert tuple(map(english, report.trouble)) == ("IN101 could not be judged (RuntimeError: broken)",)


def test_one_default_that_feeds_two_loaders_is_one_finding() -> None:
    text = "parser.add_argument('--workers', type=int, default=0)\n"
    text += "a = DataLoader(Images(), num_workers=args.workers, pin_memory=True)\n"
    text += "b = DataLoader(Images(), num_workers=args.workers, pin_memory=True)\n" + STEP

    (finding,) = checked(text).findings

    assert finding.code == "IN101" and [other.place.line for other in finding.related] == [2, 3]


Fixing = Callable[[Module, ast.Call], Fix | None]


def problem(fixing: Fixing, name: str = "bad", code: str = "ZZ101") -> Problem:
    """Every call of this name, fixed in this way."""

    def in_source(project: Code) -> Iterator[FoundInSource]:
        for module in project.project.modules:
            for call, _ in module.calls.get(name, ()):
                if not call.keywords:
                    yield FoundInSource(
                        place=module.place(call), cause=verbatim("c"), change=verbatim("c"), fix=fixing(module, call)
                    )

    return Problem(code, name, "input", "t", "", None, (), None, in_source)


def edits(*found: Edit | None, imports: tuple[str, ...] = (), is_safe: bool = True) -> Fix:
    return Fix(verbatim("w"), tuple(edit for edit in found if edit is not None), is_safe, imports)


def done(text: str, *looked_for: Problem, unsafe: bool = False) -> Fixed:
    return apply_fixes(load_texts({"a.py": text}), looked_for, lambda _: text.encode(), unsafe=unsafe)


def keyword(module: Module, call: ast.Call) -> Fix:
    return edits(add_keyword(module, call, "k=1"))


def deleted(module: Module, call: ast.Call) -> Fix:
    statement = next(node for node in ast.walk(module.tree) if isinstance(node, ast.Expr) and node.value is call)
    return edits(remove_statement(module, statement))


def test_all_that_do_not_meet_go_in_and_the_others_wait() -> None:
    other = problem(lambda module, call: edits(add_keyword(module, call, "j=2")), code="ZZ102")

    # Both want the same place: the second is cured by the first, as it looks for a call without keywords.
    result = done("bad(1)\nbad(2)\n", problem(keyword), other)

    assert result.after == {"a.py": b"bad(1, k=1)\nbad(2, k=1)\n"}
    assert not result.trouble and result.left.fixed == 2 and not result.left.findings


def test_a_block_that_would_be_left_empty_takes_another_round() -> None:
    result = done("if x:\n    bad()\n    bad()\n", problem(deleted))

    assert result.after == {"a.py": b"if x:\n    pass\n"} and result.left.fixed == 2


def test_unsafe_ones_wait_to_be_asked_for() -> None:
    risky = problem(lambda module, call: edits(add_keyword(module, call, "k=1"), is_safe=False))

    assert not done("bad()\n", risky).after
    assert done("bad()\n", risky, unsafe=True).after == {"a.py": b"bad(k=1)\n"}


def test_what_would_break_the_file_is_left_out_and_the_rest_goes_in() -> None:
    broken = problem(lambda module, call: edits(replace_node(module, call, "(")), name="worse", code="ZZ102")

    result = done("bad()\nworse()\n", problem(keyword), broken)

    assert result.after == {"a.py": b"bad(k=1)\nworse()\n"}
    assert result.trouble == ("a.py: the fix of ZZ102 in line 2 would break it and is left out",)
    assert [finding.code for finding in result.left.findings] == ["ZZ102"]


def test_a_fix_that_cures_nothing_is_taken_back() -> None:
    useless = problem(lambda module, call: edits(replace_node(module, call.args[0], "2")), name="worse", code="ZZ102")

    result = done("x = 1\nworse(1)\nbad()\n", problem(keyword), useless)

    assert result.after == {"a.py": b"x = 1\nworse(1)\nbad(k=1)\n"}
    assert result.trouble == ("a.py: ZZ102 in line 2 is still found after its fix, which is left out",)


def test_a_fix_that_changes_nothing_is_left_out() -> None:
    result = done("bad(1)\n", problem(lambda module, call: edits(replace_node(module, call.args[0], "1"))))

    assert not result.after and "changes nothing" in result.trouble[0]


def test_a_place_that_is_not_there_leaves_the_file() -> None:
    result = done("bad(1)\n", problem(lambda *_: edits(Edit(Place("a.py", 99, 3), "x"))))

    assert not result.after and result.trouble == ("a.py: has no line 99 to edit as it was read; it is left as it is",)


def test_an_import_is_added_once() -> None:
    def with_torch(module: Module, call: ast.Call) -> Fix:
        return edits(add_keyword(module, call, "k=torch.e"), imports=("import torch",))

    result = done('"""Doc."""\nimport os\nbad()\nbad()\n', problem(with_torch))

    assert result.after == {"a.py": b'"""Doc."""\nimport os\nimport torch\nbad(k=torch.e)\nbad(k=torch.e)\n'}
    # The name is taken: no fix.
    assert not done("torch = 1\nbad()\n", problem(with_torch)).after


def test_a_fix_of_two_files_goes_in_whole_or_not_at_all() -> None:
    texts = {"a.py": "bad()\n", "b.py": "x = 1\n"}

    def both(module: Module, call: ast.Call) -> Fix:
        return edits(add_keyword(module, call, "k=1"), Edit(Place("b.py", 1, 5, 1, 6), what))

    what = "2"
    result = apply_fixes(load_texts(texts), [problem(both)], lambda file: texts[file].encode(), unsafe=False)
    assert result.after == {"a.py": b"bad(k=1)\n", "b.py": b"x = 2\n"} and result.left.fixed_files == 2

    what = "("
    result = apply_fixes(load_texts(texts), [problem(both)], lambda file: texts[file].encode(), unsafe=False)
    assert not result.after and len(result.trouble) == 1

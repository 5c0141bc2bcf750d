"""Whether a statement is reached with the defaults of a script."""

from __future__ import annotations

import ast
import textwrap

import pytest

from flatout.source.code import Code
from flatout.source.flow.reachability import runs_by_default
from flatout.source.project.loading import load_texts


def reached(text: str) -> bool:
    code = Code(load_texts({"main.py": textwrap.dedent(text)}))
    (module,) = code.project.modules
    for function in module.functions:
        for call in function.calls:
            if isinstance(call.func, ast.Name) and call.func.id == "mark":
                return runs_by_default(call, function, code.project, code.values)
    raise AssertionError("nothing is marked")


_PARSER = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=None)
parser.add_argument("--runs", type=int, default=3)
parser.add_argument("--strict", action="store_true")
args = parser.parse_args()
"""


@pytest.mark.parametrize(
    "test",
    ["args.runs > 2", "args.seed is None", "not args.strict", "args.runs and not args.strict", "use_cuda", "rank == 0"],
)
def test_a_test_that_holds_lets_through(test: str) -> None:
    assert reached(f"{_PARSER}\nif {test}:\n    mark()\n")


@pytest.mark.parametrize(
    "test",
    ["args.strict", "args.seed is not None", "args.seed", "args.runs > 3 or args.strict", "unknown()", "not cuda"],
)
def test_one_that_does_not_hold_or_is_not_known_does_not(test: str) -> None:
    assert not reached(f"{_PARSER}\nif {test}:\n    mark()\n")


def test_the_other_branch_is_reached_when_the_test_fails() -> None:
    assert reached(f"{_PARSER}\nif args.strict:\n    pass\nelse:\n    mark()\n")


def test_a_function_is_reached_by_its_callers_and_their_tests() -> None:
    function = "def fix(strict=False):\n    if strict:\n        mark()\n"

    assert reached(f"{function}\nfix(strict=True)\n")
    assert not reached(f"{function}\nfix()\n")
    assert not reached(f"{function}\nif 0:\n    fix(strict=True)\n")
    assert not reached(function)


def test_main_is_started_by_whoever_runs_the_file() -> None:
    assert reached("def main():\n    mark()\n\nif __name__ == '__main__':\n    main()\n")
    assert reached("@hydra.main()\ndef begin(cfg):\n    mark()\n")

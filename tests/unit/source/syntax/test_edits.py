"""Edits of source: what they change, and that they change nothing else."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.records.source import Edit
from flatout.source.syntax.edits import Text, add_keyword, apply_changes, remove_statement, replace_node, source_text
from flatout.source.syntax.module import Module


def module_of(text: str) -> Module:
    return Module("train.py", "train", text)


def first_call(module: Module) -> ast.Call:
    calls = [node for node in ast.walk(module.tree) if isinstance(node, ast.Call)]
    return min(calls, key=lambda node: (node.lineno, node.col_offset, -(node.end_lineno or 0)))


def applied(module: Module, *edits: Edit) -> str:
    text = Text(module.text)
    return apply_changes(module.text, [text.change(edit) for edit in edits])


def added(text: str) -> str | None:
    module = module_of(text)
    edit = add_keyword(module, first_call(module), "k=1")
    return None if edit is None else applied(module, edit)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()\n", "f(k=1)\n"),
        ("f(a)\n", "f(a, k=1)\n"),
        ("f(a,)\n", "f(a, k=1,)\n"),
        ("f((a))\n", "f((a), k=1)\n"),
        ("f(*a, **b)\n", "f(*a, **b, k=1)\n"),
        ("f(é, 'ü)#(')\n", "f(é, 'ü)#(', k=1)\n"),
        ("f(lambda: 0)\n", "f(lambda: 0, k=1)\n"),
        ("f((x for x in y))\n", "f((x for x in y), k=1)\n"),
        ("f(\n    a,\n    b,\n)\n", "f(\n    a,\n    b,\n    k=1,\n)\n"),
        ("f(\n\ta,\n\tb=2,  # why\n)\n", "f(\n\ta,\n\tb=2,  # why\n\tk=1,\n)\n"),
        ("f(\n    a,\n    b  # why, (so)\n)\n", "f(\n    a,\n    b,  # why, (so)\n    k=1\n)\n"),
        ("f(\n    a,\n    b\n)\n", "f(\n    a,\n    b,\n    k=1\n)\n"),
        ("f(a,\n  b)\n", "f(a,\n  b,\n  k=1)\n"),
        ("f(\n    a, b,  # both\n)\n", "f(\n    a, b,  # both\n    k=1,\n)\n"),
        ("f(a,  # first\n  )\n", "f(a, k=1,  # first\n  )\n"),
        ("f(a \\\n )\n", "f(a, k=1 \\\n )\n"),
        ("f(\n    # nothing\n)\n", "f(\n    # nothing\nk=1)\n"),
        (
            "f(\n    a,\n    b={\n        1: 2,\n    },\n)\n",
            "f(\n    a,\n    b={\n        1: 2,\n    },\n    k=1,\n)\n",
        ),
        ('x = f"{a.to(d)}"\n', 'x = f"{a.to(d, k=1)}"\n'),
    ],
)
def test_a_keyword_goes_behind_the_others(before: str, after: str) -> None:
    assert added(before) == after
    ast.parse(after)


def test_a_generator_that_has_no_parentheses_of_its_own_gets_none() -> None:
    assert added("f(x for x in y)\n") is None


NAMES = st.sampled_from(
    ["a", "größe", "データ", "x.y", "g(1, 2)", "(a)", "((b))", "'#,)'", "[1,\n 2]", "{}", "lambda: 0"]
)
SPACES = st.sampled_from(["", " ", "\n    ", "\n\t", "  # why, (so)\n    ", "\n    # a line\n    ", " \\\n  "])


@st.composite
def calls(draw: st.DrawFn) -> str:
    positional = draw(st.lists(NAMES, max_size=3))
    named = [f"n{at}={value}" for at, value in enumerate(draw(st.lists(NAMES, max_size=3)))]
    spread = draw(st.sampled_from(["", "*rest", "**more"]))
    given = [*positional, *([spread] if spread == "*rest" else []), *named, *([spread] if spread == "**more" else [])]
    parts = [draw(SPACES) + one + draw(SPACES) for one in given]
    tail = draw(st.sampled_from(["", ","] if given else [""])) + draw(SPACES)
    before = draw(st.sampled_from(["", "é = ", "if True:\n  y = ", "z = 'ß', "]))
    return f"{before}call({','.join(parts)}{tail})  # end\nrest = 1\n"


@given(calls())
def test_any_call_gets_that_keyword_and_nothing_else(text: str) -> None:
    try:
        ast.parse(text)
    except SyntaxError:
        return  # a backslash in an odd place
    module = module_of(text)
    call = next(n for n in ast.walk(module.tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "call")

    edit = add_keyword(module, call, "k=1")

    assert edit is not None
    after = applied(module, edit)
    call.keywords.append(ast.keyword("k", ast.Constant(1)))
    assert ast.dump(ast.parse(after)) == ast.dump(module.tree)
    # Comments and all other text are there as they were, in their order.
    assert [c for c in after if c not in " \n\t,k=1"] == [c for c in text if c not in " \n\t,k=1"]
    assert after.count("#") == text.count("#")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a()\nb()\nc()\n", "a()\nc()\n"),
        ("for x in y:\n    a()\n    b()  # gone with it\n", "for x in y:\n    a()\n"),
        ("for x in y:\n    b()  # stays\n", "for x in y:\n    pass  # stays\n"),
        ("a()\nb(\n    1,\n)\nc()", "a()\nc()"),
        ("a()\nb()", "a()"),
        ("try:\n    a()\nfinally:\n    b()\n", "try:\n    a()\nfinally:\n    pass\n"),
        ("a(); b()\n", None),
        ("if x: b()\n", None),
    ],
)
def test_a_statement_goes_with_its_lines(before: str, after: str | None) -> None:
    module = module_of(before)
    statement = next(
        node
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == "b"
    )

    edit = remove_statement(module, statement)

    assert (None if edit is None else applied(module, edit)) == after


def test_a_node_is_replaced_where_it_stands() -> None:
    module = module_of("é = f(größe, b)\n")
    call = first_call(module)

    assert source_text(module, call.args[0]) == "größe"
    assert applied(module, replace_node(module, call.args[0], "x")) == "é = f(x, b)\n"

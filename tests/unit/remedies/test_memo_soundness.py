"""Whatever is taken to only compute leaves its arguments and the globals as they were, whichever way it is written."""

from __future__ import annotations

import ast
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.remedies.memo.proposal import WrittenNames
from flatout.remedies.memo.purity import Body, Impure, reads_of

HEAD = "import torch\nfrom torch import zeros\n"
_NAMES = st.sampled_from(["y", "z", "y", "z", "x"])
_GIVEN = ["x", "x", "table", "parts", "zeros(4)", "x.clone()", "(x + 1)"]


def _values(leaves: list[str]) -> st.SearchStrategy[str]:
    return st.recursive(
        st.sampled_from(leaves),
        lambda inner: st.one_of(
            inner.map("[{}]".format),
            inner.map("[{}]".format),
            inner.map("{}[0]".format),
            inner.map("{}[0]".format),
            inner.map("{}[:]".format),
            inner.map("(+{})".format),
            inner.map("list({})".format),
            inner.map("{}.view(-1)".format),
            st.tuples(inner, inner).map("({0[0]} + {0[1]})".format),
            st.tuples(inner, inner).map("({0[0]} if 1 else {0[1]})".format),
            inner.map("[one for one in {}]".format),
        ),
        max_leaves=2,
    )


_FIRST = _values(_GIVEN)
_VALUES = _values([*_GIVEN, "y", "z", "y", "z"])
_STATEMENTS = st.one_of(
    st.tuples(_NAMES, _VALUES).map("{0[0]} = {0[1]}".format),
    st.tuples(_NAMES, _VALUES).map("{0[0]}, *rest = {0[1]}, 1".format),
    st.tuples(_NAMES, _VALUES).map("{0[0]}[0] = {0[1]}".format),
    st.tuples(_NAMES, _VALUES).map("{0[0]}[0][0] = {0[1]}".format),
    st.tuples(_NAMES, _VALUES).map("{0[0]} += {0[1]}".format),
    st.tuples(_NAMES, _VALUES).map("{0[0]}[0] += {0[1]}".format),
    st.tuples(_NAMES, _VALUES).map("for {0[0]} in {0[1]}: {0[0]} += 1".format),
    st.tuples(_NAMES, _VALUES).map("for {0[0]} in {0[1]}: {0[0]}[0] = 5".format),
    st.tuples(_NAMES, _VALUES).map("{0[0]}.append({0[1]})".format),
    _VALUES.map("{}.mul_(3)".format),
    _VALUES.map("{}.zero_()".format),
    _VALUES.map("[one.mul_(2) for one in {}]".format),
    _VALUES.map("[y.append(1) for y in {}]".format),
    _NAMES.map("del {}[0]".format),
)


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@settings(max_examples=500)
@given(_FIRST, _FIRST, st.lists(_STATEMENTS, min_size=1, max_size=3))
def test_what_is_taken_changes_nothing_that_it_was_given(first: str, second: str, statements: list[str]) -> None:
    lines = [f"y = {first}", f"z = {second}", *statements, "return 1"]
    text = HEAD + "def f(x, parts):\n" + "".join(f"    {one}\n" for one in lines)
    tree = ast.parse(text)
    node = tree.body[-1]
    assert isinstance(node, ast.FunctionDef)
    try:
        reads_of(Body(node, WrittenNames(tree, None), takes_self=False))
    except Impure:
        return

    before, inner = torch.arange(4.0), torch.arange(4.0)
    x, parts, table = before.clone(), [inner.clone()], [inner.clone()]
    space: dict[str, Any] = {"table": table}
    exec(text, space)
    try:
        space["f"](x, parts)
    except Exception:
        pass  # most of these make no sense

    assert torch.equal(x, before)
    assert len(parts) == len(table) == 1
    assert torch.equal(parts[0], inner) and torch.equal(table[0], inner)

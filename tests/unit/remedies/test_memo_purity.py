"""Which functions are taken to only compute, read from their source."""

from __future__ import annotations

import ast
import textwrap
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.remedies.memo.call_key import body_of
from flatout.remedies.memo.proposal import WrittenNames
from flatout.remedies.memo.purity import Body, Freshness, Impure, Reads, reads_of
from tests.unit.remedies.modules import Load, load

__all__ = ["load"]
HEAD = """
import ctypes, functools, itertools, math, os, random, time
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, zeros
RADIUS = 3
STATE = {"calls": 0}

def timed(call):
    @functools.wraps(call)
    def timing(*args): return call(*args)
    return timing

def cap(x): return torch.clamp(1 - x * x, min=0)
def noisy(x): return cap(x) + torch.rand(1)
def endless(x): return endless(x)
wrapped = timed(cap)
libc = ctypes.CDLL(None)
def ours(x): return x
torch_like = torch.sin

class Config:
    radius = 2

class Engine:
    def __init__(self):
        self.scale, self.count, self.model = 2.0, 0, torch.nn.Linear(2, 2)
    def cap(self, x): return x * self.scale
    def counted(self, x):
        self.count += 1
        return x
    @staticmethod
    def fixed(x): return x
    @staticmethod
    def drawn(x): return x.bernoulli()
    @classmethod
    def made(cls, x): return x
"""


def reads(load: Load, function: str, of_class: bool = False) -> Reads:
    text = HEAD
    text += textwrap.indent(textwrap.dedent(function), "    ") if of_class else textwrap.dedent(function)
    module: ModuleType = load(text)
    if of_class:
        return reads_of(body_of(module.Engine.f, module.Engine))
    return reads_of(body_of(module.f))


PURE = {
    "draws into a tensor of its own": """
        def f(points, shape):
            out = zeros(shape)
            for i in range(points.shape[0]):
                for y in range(RADIUS):
                    px = points[i, 0] / 4
                    cx = int(px)
                    out[i, y] = torch.clamp(1 - (y - px) ** 2, min=0)
                    out[i][cx] = 1.0
            return out, out.sum()
        """,
    "fills a list of its own": """
        def f(x):
            parts = []
            for row in x:
                parts.append(row.exp())
            total = 0.0
            for i in range(3):
                total += i
            return torch.stack(parts) + total
        """,
    "changes a copy": """
        def f(x):
            y = x.clone()
            y += 1
            y.clamp_(0, 1)
            z = y.view(-1)
            z[0] = 2
            return z.float()
        """,
    "changes what an operator made": """
        def f(x):
            y = 1 - x
            y.clamp_(min=0)
            y[0] = 2
            y *= 2
            z = zeros(4)
            z[0] += y.sum()
            return y, z
        """,
    "calls functions of the user's": "def f(x): return cap(cap(x)) + F.relu(x)",
    "comprehensions": "def f(x): return [cap(row) for row in x if row.sum() > 0], {k: v for k, v in enumerate(x)}",
    "without gradients": "@torch.no_grad()\ndef f(x):\n    with torch.no_grad():\n        return x * 2",
    "numpy and math": "def f(x): return np.clip(x, 0, 1) * math.sqrt(2) + np.arange(3, dtype=np.float32)",
    "walrus and conditions": "def f(x): return y if (y := x.max()) > 0 else -y",
    "raises": "def f(x):\n    if x.ndim > 9: raise ValueError(f'{x.shape}')\n    return x + 1",
    "all pairs": "def f(x): return list(itertools.product(range(2), range(3)))",
    "sorts a list of its own": "def f(x):\n    y = [float(one) for one in x]\n    y.sort()\n    return y",
    "a shadowed global": "def f(x):\n    RADIUS = [x.sum()]\n    RADIUS[0] = 1\n    return RADIUS",
}
IMPURE = {
    "global": ("def f(x):\n    global RADIUS\n    RADIUS = 1\n    return x", "writes a global name"),
    "item of a global": ("def f(x):\n    STATE['calls'] = 1\n    return x", "writes into STATE"),
    "method of a global": ("def f(x):\n    STATE.update(a=1)\n    return x", "STATE.update"),
    "attribute": ("def f(x):\n    x.mark = 1\n    return x", "sets x.mark"),
    "item of an argument": ("def f(x):\n    x[0] = 1\n    return x.sum()", "writes into x"),
    "alias of an argument": ("def f(x):\n    y = x\n    y[0] = 1\n    return y.sum()", "writes into y"),
    "view of an argument": ("def f(x):\n    y = x.view(-1)\n    y[0] = 1\n    return y.sum()", "writes into y"),
    "an argument or its own": ("def f(x):\n    y = zeros(2)\n    y = x\n    y[0] = 1\n    return 1", "writes into y"),
    "through a list": ("def f(x):\n    y = [x]\n    y[0][0] = 1\n    return 1", "writes into y[0]"),
    "out of a list": ("def f(x):\n    y = [x]\n    y = y[0]\n    y[0] = 1\n    return 1", "writes into y"),
    "out of a sum of lists": ("def f(x):\n    y = [x] + []\n    y[0][0] = 1\n    return 1", "writes into y[0]"),
    "in place, in a list": ("def f(x):\n    y = [x]\n    y[0] += 1\n    return 1", "changes y[0] in place"),
    "in place, a list's": ("def f(x):\n    y = [x]\n    y[0].clamp_(0)\n    return 1", ".clamp_() on y[0]"),
    "in a loop over a list": ("def f(x):\n    for y in [x]:\n        y[0] = 1\n    return 1", "writes into y"),
    "in place": ("def f(x):\n    x += 1\n    return x.sum()", "changes x in place"),
    "in place, plus": ("def f(x):\n    y = +x\n    y += 1\n    return y", "changes y in place"),
    "in-place method": ("def f(x): return x.clamp_(0, 1)", ".clamp_() on x"),
    "sorts its argument": ("def f(x):\n    x.sort()\n    return x[0]", ".sort() on x"),
    "appends to its argument": ("def f(x):\n    x.append(1)\n    return x[0]", ".append() on x"),
    "out": ("def f(x, y): return torch.exp(x, out=y)", "torch.exp with out"),
    "ufunc out": ("def f(x, y): return np.exp(x, y)", "written into"),
    "deletes": ("def f(x):\n    del x[0]\n    return 1", "writes into x"),
    "print": ("def f(x):\n    print(x)\n    return x", "calls print"),
    "print as a key": ("def f(x): return sorted(x, key=print)", "calls print"),
    "open": ("def f(x): return str(open('a'))", "calls open"),
    "time": ("def f(x): return x * time.time()", "time.time, which is not known"),
    "random": ("def f(x): return x * random.random()", "draws random numbers"),
    "torch's random": ("def f(x): return x + torch.randn(3)", "draws random numbers"),
    "its own random": ("def f(x): return noisy(x)", "draws random numbers (noisy"),
    "dropout": ("def f(x): return F.dropout(x)", "draws random numbers"),
    "random in place": ("def f(x):\n    y = zeros(3)\n    y.uniform_()\n    return y", ".uniform_() on y"),
    "generator": ("def f(x): return torch.zeros(3, generator=None)", "with generator"),
    "uninitialised": ("def f(x): return torch.empty(3)", "torch.empty, which is not known"),
    "C function": ("def f(x): return libc.rand() + x", "libc.rand"),
    "unknown function": ("def f(x): return os.getpid() + x", "os.getpid"),
    "decorated": ("@timed\ndef f(x): return x * 2", "wrapped in something else"),
    "calls a decorated one": ("def f(x): return wrapped(x)", "wrapped in something else"),
    "a function it is given": ("def f(x, g): return g(x)", "cannot be told"),
    "a method nobody knows": ("def f(x): return x.observe()", ".observe()"),
    "private": ("def f(x): return x._version", "private"),
    "grad": ("def f(x): return x.grad", "no content"),
    "generator function": ("def f(x): yield x", "generator"),
    "inner function": ("def f(x):\n    def g(): return x\n    return g()", "defines a function"),
    "lambda": ("def f(x): return sorted(x, key=lambda one: -one)", "defines a function"),
    "import": ("def f(x):\n    import os\n    return x", "imports"),
    "context": ("def f(x):\n    with open('a') as g:\n        return x", "enters open"),
    "keywords": ("def f(x, options): return torch.sum(x, **options)", "with **"),
    "through a comprehension's name": (
        "def f(x):\n    y = []\n    return [y.append(1) for y in x]",
        ".append() on y",
    ),
    "a global under a comprehension's name": (
        "def f(x): return [RADIUS for RADIUS in x] + STATE.pop('a')",
        "STATE.pop",
    ),
}
IMPURE_METHODS = {
    "another self": ("def f(self, x):\n    self = x\n    return self.scale", "gives self another value"),
    "sets": ("def f(self, x):\n    self.count = 1\n    return x", "sets self.count"),
    "counts": ("def f(self, x):\n    self.count += 1\n    return x", "sets self.count"),
    "calls one that counts": ("def f(self, x): return self.counted(x)", "sets self.count (counted"),
    "calls a model": ("def f(self, x): return self.model(x)", "self.model, which is no plain method"),
    "calls a class method": ("def f(self, x): return self.made(x)", "no plain method"),
    "calls a random one": ("def f(self, x): return self.drawn(x)", "draws random numbers (drawn"),
    "hands self on": ("def f(self, x): return ours(self)", "hands self on"),
    "super": ("def f(self, x): return super().f(x)", "calls .f()"),
    "closed over": ("def f(self, x): return [self for _ in x]", "hands self on"),
}


@pytest.mark.parametrize("name", PURE)
def test_what_only_computes_is_taken(load: Load, name: str) -> None:
    reads(load, PURE[name])


@pytest.mark.parametrize("name", IMPURE)
def test_what_does_more_is_refused_with_the_reason(load: Load, name: str) -> None:
    function, why = IMPURE[name]

    with pytest.raises(Impure) as impure:
        reads(load, function)

    assert why in str(impure.value)


@pytest.mark.parametrize("name", IMPURE_METHODS)
def test_so_are_methods(load: Load, name: str) -> None:
    function, why = IMPURE_METHODS[name]

    with pytest.raises(Impure) as impure:
        reads(load, function, of_class=True)

    assert why in str(impure.value)


def test_what_else_it_reads_is_listed(load: Load) -> None:
    found = reads(
        load, "def f(self, x): return self.cap(self.fixed(x)) * RADIUS + self.model.bias.sum() + Config.radius", True
    )

    assert found.of_self == {("scale",), ("model", "bias")}
    assert [path for _, path in found.of_names] == [("RADIUS",), ("Config", "radius")]
    assert sorted(found.functions) == ["cap", "f", "fixed"]
    assert reads(load, "def f(x): return endless(cap(x))").functions == ["f", "endless", "cap"]


def test_what_a_comprehension_goes_over_is_read_outside_of_it(load: Load) -> None:
    found = reads(load, "def f(x): return [RADIUS for RADIUS in RADIUS for y in RADIUS]")

    assert [path for _, path in found.of_names] == [("RADIUS",)]


@pytest.mark.parametrize(
    ("function", "has_products"),
    [
        ("def f(x): return x @ x", True),
        ("def f(x):\n    y = x.clone()\n    y @= x\n    return y", True),
        ("def f(x): return torch.einsum('ij,jk', x, x)", True),
        ("def f(x): return x.mm(x)", True),
        ("def f(x): return F.conv2d(x, x)", True),
        ("def helped(x): return torch.mm(x, x)\ndef f(x): return helped(x)", True),
        ("def f(x): return sorted(x, key=torch.dot)", True),
        ("def f(x): return torch.clamp(x * x, min=0).sum().sqrt()", False),
        ("def f(x):\n    y = torch.zeros(4)\n    y[int(x)] = (x - 1) ** 2\n    return y", False),
    ],
)
def test_products_of_matrices_and_convolutions_are_seen(load: Load, function: str, has_products: bool) -> None:
    assert reads(load, function).has_products is has_products


def test_a_grid_may_be_read(load: Load) -> None:
    assert not reads(load, "def f(n): return np.mgrid[0:n, 0:4] * np.pi").of_self


def test_source_that_was_changed_since_is_not_read(load: Load) -> None:
    import linecache

    module = load("def f(x):\n    return x.sum(dim=x)\n")
    path = str(module.__file__)
    with open(path, "w") as file:
        file.write("def f(x):\n    return x.sum(out=x)\n")
    linecache.checkcache(path)

    with pytest.raises(Impure, match="has changed since"):
        body_of(module.f)


def test_a_function_without_source_is_refused() -> None:
    space: dict[str, object] = {}
    exec("def f(x): return x", space)

    with pytest.raises(Impure, match="cannot be read"):
        body_of(space["f"])
    with pytest.raises(Impure, match="not written in Python"):
        body_of(len)


_LEAVES = st.sampled_from(["x", "y", "zeros(3)", "[x]", "x.clone()", "(0)", "(x + 1)", "unknown(x)"])
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        inner.map("{}[0]".format),
        inner.map("{}.view(-1)".format),
        st.tuples(inner, inner).map("({0[0]} if x else {0[1]})".format),
    ),
    max_leaves=4,
)


@given(st.lists(st.tuples(st.sampled_from("yz"), _VALUES), min_size=1, max_size=6), st.data())
def test_no_name_is_fresher_than_each_of_its_values(assignments: list[tuple[str, str]], data: st.DataObject) -> None:
    import ast

    rank = {"tensor": 2, "container": 1, "new": 1, None: 0}
    body = "".join(f"    {name} = {value}\n" for name, value in assignments)
    node = ast.parse(f"def f(x):\n{body}").body[0]
    assert isinstance(node, ast.FunctionDef)

    fresh = Freshness(node, lambda path: "torch.zeros" if path == ("zeros",) else None)

    name, value = data.draw(st.sampled_from(assignments))
    kind = fresh.kind(ast.parse(value, mode="eval").body)
    assert rank[fresh.kind(ast.Name(name, ast.Load()))] <= rank.get(kind, 2)
    assert fresh.kind(ast.Name("x", ast.Load())) is None


# Whatever is taken to only compute leaves its arguments and the globals as they were, whichever way it is written.


IMPORTS = "import torch\nfrom torch import zeros\n"
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
_WRITTEN = _values([*_GIVEN, "y", "z", "y", "z"])
_STATEMENTS = st.one_of(
    st.tuples(_NAMES, _WRITTEN).map("{0[0]} = {0[1]}".format),
    st.tuples(_NAMES, _WRITTEN).map("{0[0]}, *rest = {0[1]}, 1".format),
    st.tuples(_NAMES, _WRITTEN).map("{0[0]}[0] = {0[1]}".format),
    st.tuples(_NAMES, _WRITTEN).map("{0[0]}[0][0] = {0[1]}".format),
    st.tuples(_NAMES, _WRITTEN).map("{0[0]} += {0[1]}".format),
    st.tuples(_NAMES, _WRITTEN).map("{0[0]}[0] += {0[1]}".format),
    st.tuples(_NAMES, _WRITTEN).map("for {0[0]} in {0[1]}: {0[0]} += 1".format),
    st.tuples(_NAMES, _WRITTEN).map("for {0[0]} in {0[1]}: {0[0]}[0] = 5".format),
    st.tuples(_NAMES, _WRITTEN).map("{0[0]}.append({0[1]})".format),
    _WRITTEN.map("{}.mul_(3)".format),
    _WRITTEN.map("{}.zero_()".format),
    _WRITTEN.map("[one.mul_(2) for one in {}]".format),
    _WRITTEN.map("[y.append(1) for y in {}]".format),
    _NAMES.map("del {}[0]".format),
)


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@settings(max_examples=500)
@given(_FIRST, _FIRST, st.lists(_STATEMENTS, min_size=1, max_size=3))
def test_what_is_taken_changes_nothing_that_it_was_given(first: str, second: str, statements: list[str]) -> None:
    lines = [f"y = {first}", f"z = {second}", *statements, "return 1"]
    text = IMPORTS + "def f(x, parts):\n" + "".join(f"    {one}\n" for one in lines)
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

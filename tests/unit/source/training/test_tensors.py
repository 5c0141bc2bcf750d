"""What is told of an expression: on a device, with its graph or without, on the host, or nothing."""

from __future__ import annotations

import ast
import textwrap

import pytest

from flatout.source.flow.devices import moves_to
from flatout.source.project.loading import load_texts
from flatout.source.training.tensors import Kind, Tensors

HEAD = """
import numpy as np
import torch
import torch.nn.functional as F

model = Net().to(device)
for x, y in loader:
    x = x.to(device)
    out = model(x)
    loss = F.cross_entropy(out, y.cuda())
    loss.backward()
"""


def kind(expression: str, before: str = "") -> Kind:
    text = HEAD + textwrap.indent(f"{before}\nprobe({expression})\n".lstrip("\n"), "    ")
    project = load_texts({"train.py": text})
    body = project.modules[0].body
    tensors = Tensors(project, body)
    (call,) = [one for one in body.calls if isinstance(one.func, ast.Name) and one.func.id == "probe"]
    return tensors.of(call.args[0])


@pytest.mark.parametrize(
    "expression",
    [
        "out",
        "loss",
        "loss * 2",
        "out.mean()",
        "out[0]",
        "-loss",
        "F.relu(out)",
        "torch.stack([loss, loss])",
        "sum([loss])",
    ],
)
def test_results_of_the_model_have_a_graph(expression: str) -> None:
    assert kind(expression) == "graph"


@pytest.mark.parametrize(
    "expression",
    ["x", "loss.detach()", "out.data", "out > 0", "torch.zeros(3, device=device)", "x.float()", "loss.detach() + 1"],
)
def test_others_are_only_on_the_device(expression: str) -> None:
    assert kind(expression) == "device"


@pytest.mark.parametrize(
    "expression",
    ["y", "loss.item()", "out.shape[0]", "len(x)", "x.size(0)", "out.cpu()", "np.mean(3)", "1.5", 'f"{loss}"',
     "float(loss)", "torch.zeros(3)", "loss.cpu().numpy()", "loss is None"],
)  # fmt: skip
def test_numbers_and_host_tensors_are_not(expression: str) -> None:
    assert kind(expression) == "host"


def test_what_cannot_be_told_is_not_known() -> None:
    assert kind("something") is None
    assert kind("library.call(3)") is None


def test_assignments_branches_containers_and_sums_are_followed() -> None:
    assert kind("loss", "loss = loss.item()") == "host"
    assert kind("a", "a, b = loss, 3") == "graph" and kind("b", "a, b = loss, 3") == "host"
    assert kind("parts['a']", "parts = {}\nparts['a'] = loss") == "graph"
    assert kind("rows", "rows = []\nrows.append(loss)") == "graph"
    assert kind("total", "total = 0\ntotal += loss") == "graph"
    assert kind("total", "total = 0\ntotal += loss.item()") == "host"
    assert kind("v", "with torch.no_grad():\n    v = model(x)") == "device"
    assert kind("p", "for p in model.parameters():\n    pass") == "graph"


def test_functions_of_the_project_are_followed_with_what_they_are_given() -> None:
    project = load_texts(
        {
            "train.py": "from util import read, keep\nfor x in loader:\n    out = model(x.to(device))\n"
            "    probe(read(out))\n    probe(keep(out))\n",
            "util.py": "def read(v):\n    return v.item()\n\ndef keep(v):\n    return v.mean()\n",
        }
    )
    body = project.modules[0].body
    tensors = Tensors(project, body)
    calls = sorted((c for c in body.calls if getattr(c.func, "id", "") == "probe"), key=lambda c: c.lineno)

    assert [tensors.of(call.args[0]) for call in calls] == ["host", "graph"]


@pytest.mark.parametrize(
    ("returns", "expected"),
    [
        ("    if v.dim() > 1:\n        return v.mean()\n    return 0.0\n", None),
        ("    raise NotImplementedError\n", None),
        ("    print(v)\n", "host"),
    ],
)
def test_a_function_that_returns_this_or_that_tells_nothing(returns: str, expected: Kind) -> None:
    text = "def f(v):\n" + returns + "for x in loader:\n    out = model(x.to(device))\n    probe(f(out))\n"
    project = load_texts({"train.py": text})
    body = project.modules[0].body
    (call,) = [one for one in body.calls if isinstance(one.func, ast.Name) and one.func.id == "probe"]

    assert Tensors(project, body).of(call.args[0]) == expected


@pytest.mark.parametrize(
    ("call", "place"),
    [
        ("x.to(device)", "device"),
        ("x.to('cuda:0')", "device"),
        ("x.to(0)", "device"),
        ("x.to(self.device, non_blocking=True)", "device"),
        ("x.cuda()", "device"),
        ("x.to('cpu')", "host"),
        ("x.to(torch.device('cpu'))", "host"),
        ("x.cpu()", "host"),
        ("x.to(torch.float16)", None),
        ("x.to(dtype)", None),
        ("x.to(other)", None),
        ("to(device)", None),
    ],
)
def test_where_a_move_goes(call: str, place: str | None) -> None:
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call)

    assert moves_to(node) == place

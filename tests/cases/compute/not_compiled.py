"""Code that has CO509, and that must stay quiet."""

from __future__ import annotations

from tests.cases.code import SourceCase

_SCRIPT = """
import re
import torch

pattern = re.compile("x+")
model = Net().to("cuda")
for x, y in loader:  # found
    loss = criterion(model(x.to("cuda")), y.to("cuda"))
    loss.backward()
    optimizer.step()
"""
_QUIET = _SCRIPT.replace("  # found", "")
SOURCE_CASES = (
    SourceCase("finds it where the model is trained", _SCRIPT),
    SourceCase(
        "finds it in a function that is given the model",
        "def train(model, loader):\n    for x in loader:  # found\n        loss = model(x.cuda())\n"
        "        loss.backward()\n        optimizer.step()\n",
    ),
    SourceCase("quiet when the model is compiled", _QUIET + "model = torch.compile(model)\n"),
    SourceCase("quiet when it is compiled in place", _QUIET.replace("for x, y", "model.compile()\nfor x, y")),
    SourceCase("quiet when a part is", "@torch.compile\ndef gelu(x):\n    return x\n" + _QUIET),
    SourceCase("quiet when it is scripted", _QUIET + "model = torch.jit.script(model)\n"),
    SourceCase("quiet when each batch has another shape", "from torch_geometric.data import Data\n" + _QUIET),
    SourceCase("quiet on a CPU", _QUIET.replace("cuda", "cpu")),
    SourceCase("quiet when a launcher has a say", "accelerator = Accelerator()\n" + _QUIET),
)

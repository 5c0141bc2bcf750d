"""Code that has HO409, and that must stay quiet."""

from __future__ import annotations

from tests.cases.code import SourceCase

_TRAINED = """
import torch
from torch import optim
model = Net().to("cuda")
optimizer = optim.AdamW(model.parameters(), lr=1e-3)  # found
for x, y in loader:
    optimizer.zero_grad()
    criterion(model(x.to("cuda")), y.to("cuda")).backward()
    optimizer.step()
"""
_QUIET = _TRAINED.replace("  # found", "")
SOURCE_CASES = (
    SourceCase("finds it where the optimizer is made", _TRAINED),
    SourceCase(
        "finds it in another file",
        {
            "train.py": _QUIET.replace("optim.AdamW(model.parameters(), lr=1e-3)", "made(model)").replace(
                "from torch import optim", "from making import made"
            ),
            "making.py": "from torch.optim import Adam\n\ndef made(model):\n"
            "    return Adam(\n        model.parameters(),\n    )\n".replace("Adam(\n", "Adam(  # found\n"),
        },
    ),
    SourceCase("quiet when it is fused", _QUIET.replace("lr=1e-3", "lr=1e-3, fused=True")),
    SourceCase("quiet when foreach was chosen", _QUIET.replace("lr=1e-3", "lr=1e-3, foreach=True")),
    SourceCase("quiet when more is given than one sees", _QUIET.replace("lr=1e-3", "**settings")),
    SourceCase("quiet on a CPU", _QUIET.replace("cuda", "cpu")),
    SourceCase("quiet when it is another library's", _QUIET.replace("from torch import optim", "import optim")),
)

"""A script that notes when it began, when torch was there, and when its first step was done."""

from __future__ import annotations

import time

began_s = time.perf_counter()

import json  # noqa: E402  what follows is timed
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

import torch  # noqa: E402
from torch import nn  # noqa: E402

imported_s = time.perf_counter()

model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.zeros(4, 8)).sum().backward()
    optimizer.step()
Path(sys.argv[1]).write_text(
    json.dumps({"began_s": began_s, "imported_s": imported_s, "stepped_s": time.perf_counter()})
)

"""The user's own signal handlers, one set before torch is imported and two after, all fire while it trains."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import FrameType

fired: list[str] = []


def note(number: int, _frame: FrameType | None) -> None:
    fired.append(signal.Signals(number).name)


signal.signal(signal.SIGTERM, note)

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

signal.signal(signal.SIGINT, note)
signal.signal(signal.SIGCHLD, note)
signal.signal(signal.SIGALRM, note)
torch.set_num_threads(1)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step, (x,) in enumerate(DataLoader(TensorDataset(torch.randn(160, 8)), batch_size=8)):
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 3:
        os.kill(os.getpid(), signal.SIGTERM)
    if step == 5:
        os.kill(os.getpid(), signal.SIGINT)
    if step == 7:
        subprocess.run([sys.executable, "-S", "-c", ""], check=True)
    if step == 9:
        signal.raise_signal(signal.SIGALRM)
print("fired", sorted(set(fired)), flush=True)
sys.exit(9 if signal.getsignal(signal.SIGTERM) is not note else 0)

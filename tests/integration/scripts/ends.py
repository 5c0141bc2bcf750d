"""Half a second of steps, then an end that is not the usual one; argv[1] says which."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
truth = Truth()
for (x,) in DataLoader(TensorDataset(torch.randn(320, 8)), batch_size=8):
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    truth.step(len(x))
    time.sleep(0.012)
truth.tell(ends_ns=truth.ends_ns)
match sys.argv[1]:
    case "raise":
        raise ValueError("the user's own trouble")
    case "exit":
        raise SystemExit(3)
    case "interrupt":
        raise KeyboardInterrupt
    case "sigterm":
        os.kill(os.getpid(), signal.SIGTERM)
    case "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    case "os_exit":
        os._exit(7)
    case "thread":
        thread = threading.Thread(target=sys.exit, args=(5,))
        thread.start()
        thread.join()
    case other:
        raise AssertionError(other)

"""A small training with a slow dataset, and ways to go wrong after a few steps."""

import gc
import json
import os
import sys
import time

# Started very often, and most of it is importing torch, which is quicker so.
gc.disable()
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402


class Slow(Dataset):
    def __len__(self):
        return 8 * 60

    def __getitem__(self, i):
        if "tells" in sys.argv:
            os.write(1, f"LOADS {os.getpid()}\n".encode())
        time.sleep(0.001)
        return torch.full((16,), float(i % 13)) + (torch.randn(16) if "draws" in sys.argv else 0), i % 3


if __name__ == "__main__":
    mode = sys.argv[1] if len(sys.argv) > 1 else "plain"
    torch.manual_seed(0)
    model = nn.Linear(16, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    gc.freeze()
    gc.enable()
    step = 0
    for epoch in range(3):
        for x, y in DataLoader(Slow(), 8, shuffle=True):
            loss = nn.functional.cross_entropy(model(x), y)
            if step == 12:
                if mode == "raises":
                    raise ValueError("a broken sample")
                if mode == "memory":
                    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
                if mode == "segfault":
                    os.kill(os.getpid(), 11)
                if mode == "hangs":
                    time.sleep(3600)
                if mode == "nan":
                    loss = loss * float("nan")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if mode == "short" and step == 15:
                sys.exit()
        print(f"epoch {epoch} PSNR: {20 + epoch}.5", flush=True)
    print("TRUTH " + json.dumps({"steps": step}))

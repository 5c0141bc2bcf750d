"""Action recognition on short clips: frames are held as bytes, a 3D net with factorised kernels learns from them.

expects: TR205, TR201, IN109
needs: gpu
"""

# mypy: ignore-errors
import argparse
import threading
from queue import Queue

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MEAN, STD = (0.43, 0.39, 0.37), (0.23, 0.22, 0.22)


class ClipStore:
    """Clips in one array of bytes; a thread gathers the next batch while the net works on this one."""

    def __init__(self, clips, frames, size, seed=0):
        rng = np.random.default_rng(seed)
        self.x = torch.from_numpy(rng.integers(0, 256, (clips, 3, frames, size, size), dtype=np.uint8))
        self.y = torch.from_numpy(rng.integers(0, 50, clips))
        self.rng = rng

    def batches(self, n, size, widen, pin):
        queue = Queue(2)
        mean, std = (torch.tensor(v).view(1, 3, 1, 1, 1) for v in (MEAN, STD))

        def work():
            for _ in range(n):
                idx = torch.from_numpy(self.rng.integers(0, len(self.y), size))
                x = self.x[idx]
                if widen:
                    x = (x.float() / 255 - mean) / std  # guilty
                elif pin:
                    x = x.pin_memory()
                queue.put((x, self.y[idx]))
            queue.put(None)

        threading.Thread(target=work, daemon=True).start()
        return iter(queue.get, None)


class R2Plus1D(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        mid = cout
        self.space = nn.Conv3d(cin, mid, (1, 3, 3), (1, stride, stride), (0, 1, 1), bias=False)
        self.time = nn.Conv3d(mid, cout, (3, 1, 1), (stride, 1, 1), (1, 0, 0), bias=False)
        self.bn1, self.bn2 = nn.BatchNorm3d(mid), nn.BatchNorm3d(cout)

    def forward(self, x):
        return F.relu(self.bn2(self.time(F.relu(self.bn1(self.space(x))))))


def net(width, classes=50):
    return nn.Sequential(
        R2Plus1D(3, width, 2),
        R2Plus1D(width, 2 * width, 2),
        R2Plus1D(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(4 * width, classes),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    device, cuda = torch.device(args.device), args.device != "cpu"
    store = ClipStore(256, 16, 112) if cuda else ClipStore(8, 8, 16)
    model = net(64 if cuda else 8).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, fused=cuda)
    mean, std = (torch.tensor(v, device=device).view(1, 3, 1, 1, 1) for v in (MEAN, STD))
    feed = store.batches(args.steps, 40 if cuda else 2, widen=not args.fixed, pin=cuda)
    for step, (x, y) in enumerate(feed, 1):  # guilty
        x = x.to(device, non_blocking=True)  # guilty
        y = y.to(device, non_blocking=True)
        if args.fixed:
            x = (x.float() / 255 - mean) / std
        with torch.autocast(device.type, torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()

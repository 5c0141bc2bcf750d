"""Inputs that get longer as training goes on, a part of each kept for a while: no old block fits what comes next.

expects: ME710, ME704
needs: gpu
gain: no
line: no
"""
# mypy: ignore-errors

import argparse
import os
import random
import sys
from collections import deque

if "--fixed" in sys.argv:
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

import torch
from torch import nn

# Tensors take 3.5 GB at most. Without the limit torch would hold on to twice that, in pieces; with it the allocator has
# to start over again and again (14 times in 400 steps, by a model of it), but finds room in the end. Lengths that only
# vary settle after a few dozen steps: whatever length comes has had its block by then.
WIDTH, KEPT, KEPT_PART, ROOM_BYTES = 4096, 24, 0.2, 5 << 30


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    draw = random.Random(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    unit = 12_800 if device.type == "cuda" else 192
    if device.type == "cuda":
        # As on a card of this size, whatever is installed.
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, ROOM_BYTES / total))
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 16)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    replay = deque(maxlen=KEPT)
    for step in range(args.steps):
        rows = int(unit * (1 + 2 * step / args.steps) * draw.uniform(0.9, 1.0))
        x = torch.rand(rows, WIDTH, device=device)
        loss = model(x).square().mean()
        if replay:
            loss = loss + model(draw.choice(replay)[:512]).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        del x, loss
        replay.append(torch.rand(int(KEPT_PART * rows), WIDTH, device=device))


if __name__ == "__main__":
    main()

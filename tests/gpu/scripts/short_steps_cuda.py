"""Thousands of steps of a millisecond or two, with copies, a wait and a scaler, of which most are only counted."""

import json
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 2500
mode = sys.argv[1]
device = torch.device("cuda")
torch.manual_seed(0)
width = 256
model = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(width, width), nn.ReLU())]).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cuda", enabled=mode == "scaler")
data = TensorDataset(torch.randn(16 * STEPS, 8), torch.randn(16 * STEPS, 8))
loader = DataLoader(data, batch_size=16)
grow = torch.randn(8, width, device=device)


def batches():
    if mode == "loaderless":
        for _ in range(STEPS):
            yield torch.randn(16, 8, device=device), torch.randn(16, 8, device=device)
    else:
        for x, y in loader:
            yield x.to(device), y.to(device)  # SITE copy


total = 0.0
begun = time.perf_counter()
for step, (x, y) in enumerate(batches()):
    optimizer.zero_grad()
    loss = (model(x @ grow) - y @ grow).square().mean()
    if mode == "scaler":
        # Infinite gradients now and then: the scaler leaves the step out.
        scale = torch.tensor(float("inf"), device=device) if step in (700, 1400, 2100) else 1.0
        scaler.scale(loss * scale).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        optimizer.step()
    if mode == "waits":
        total += loss.item()  # SITE item
torch.cuda.synchronize()
print("TRUTH " + json.dumps({"steps": STEPS, "seconds": time.perf_counter() - begun}))

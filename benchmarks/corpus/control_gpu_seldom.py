"""Large matrix products in bf16, with a log line and a checkpoint now and then.

expects: none
needs: gpu
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn


def main(steps):
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    layers = [layer for _ in range(8) for layer in (nn.Linear(4096, 4096), nn.GELU())]
    model = nn.Sequential(*layers).to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    x = torch.randn(8192, 4096, device=device, dtype=torch.bfloat16)
    total = torch.zeros((), device=device)
    for step in range(1, steps + 1):
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % 100 == 0:
            print(f"step {step} loss {total.item() / step:.4f}")
    torch.save({"loss": total}, "total.pt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    main(parser.parse_args().steps)

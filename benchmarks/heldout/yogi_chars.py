"""A character model with an optimizer written from the paper (Yogi).

expects: HO403
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
from torch import nn

TEXT = "the quick brown fox jumps over the lazy dog; pack my box with five dozen liquor jugs. " * 200


class Yogi(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-3):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"], state["m"], state["v"] = 0, torch.zeros_like(p), torch.full_like(p, 1e-6)
                state["step"] += 1
                squared = p.grad * p.grad
                state["m"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
                state["v"] = state["v"] - (1 - beta2) * torch.sign(state["v"] - squared) * squared
                scale = math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
                p -= group["lr"] * scale * state["m"] / (state["v"].sqrt() + group["eps"])  # guilty


class Chars(nn.Module):
    """Many narrow residual blocks."""

    def __init__(self, symbols, context=16, width=448, depth=12):
        super().__init__()
        self.embed = nn.Embedding(symbols, 8)
        self.first = nn.Linear(8 * context, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width)) for _ in range(depth))
        self.last = nn.Linear(width, symbols)

    def forward(self, x):
        x = self.first(self.embed(x).flatten(1))
        for block in self.blocks:
            x = x + torch.relu(block(x))
        return self.last(x)


def main(steps, fixed):
    torch.manual_seed(17)
    torch.set_num_threads(1)
    symbols = sorted(set(TEXT))
    codes = torch.tensor([symbols.index(char) for char in TEXT])
    windows = codes.unfold(0, 17, 1)
    model = Chars(len(symbols))
    if fixed:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    else:
        optimizer = Yogi(model.parameters(), lr=1e-3)
    for step in range(1, steps + 1):
        rows = windows[torch.randint(len(windows), (16,))]
        loss = nn.functional.cross_entropy(model(rows[:, :-1]), rows[:, -1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # guilty
        if step % 60 == 0:
            print(f"step {step:4d} loss {loss.item():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=190)
    parser.add_argument("--fixed", action="store_true")
    main(**vars(parser.parse_args()))

"""An optimizer of the project's own that goes through its parameters one by one.

expects: HO403
needs: either
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn
from torch.optim import Optimizer


class Lion(Optimizer):
    def __init__(self, params, lr=1e-4, beta=0.95):
        super().__init__(params, {"lr": lr, "beta": beta})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:  # guilty
                if p.grad is None:
                    continue
                state = self.state[p]
                if "mean" not in state:
                    state["mean"] = torch.zeros_like(p)
                    state["steps"] = torch.zeros(())
                state["steps"] += 1  # guilty
                update = state["mean"].mul(0.9).add(p.grad, alpha=0.1).sign_()  # guilty
                p.mul_(1 - 0.01 * group["lr"])  # guilty
                p.add_(update, alpha=-group["lr"])  # guilty
                state["mean"].mul_(group["beta"]).add_(p.grad, alpha=1 - group["beta"])  # guilty


class LionAtOnce(Lion):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            grads = [p.grad for p in params]
            if "means" not in group:
                group["means"] = [torch.zeros_like(p) for p in params]
                group["flat"] = torch.zeros(sum(p.numel() for p in params), device=params[0].device)
            flat = torch.cat([g.flatten() for g in grads])
            update = (0.9 * group["flat"] + 0.1 * flat).sign_()
            torch._foreach_mul_(params, 1 - 0.01 * group["lr"])
            parts = update.split([p.numel() for p in params])
            torch._foreach_add_(params, [u.view_as(p) for u, p in zip(parts, params, strict=True)], alpha=-group["lr"])
            group["flat"].mul_(group["beta"]).add_(flat, alpha=1 - group["beta"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    heads = nn.ModuleList(nn.Linear(24, 24) for _ in range(160)).to(device)
    optimizer = (LionAtOnce if args.fixed else Lion)(heads.parameters(), lr=1e-4)
    x = torch.randn(32, 24, device=device)
    for _ in range(args.steps):
        weights = torch.stack([head.weight for head in heads])
        biases = torch.stack([head.bias for head in heads])
        out = torch.einsum("bi,hoi->bho", x, weights) + biases
        loss = (out - x[:, None]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()

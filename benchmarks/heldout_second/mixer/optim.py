"""Yogi, an Adam whose second moment moves additively."""

# mypy: ignore-errors

import torch
from torch.optim import Optimizer


class Yogi(Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-3):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["mean"] = torch.zeros_like(p)
                    state["spread"] = torch.full_like(p, 1e-6)
                mean, spread = state["mean"], state["spread"]
                square = p.grad * p.grad  # guilty
                mean.mul_(beta1).add_(p.grad, alpha=1 - beta1)  # guilty
                spread.sub_((1 - beta2) * torch.sign(spread - square) * square)  # guilty
                p.sub_(group["lr"] * mean / (spread.abs().sqrt() + group["eps"]))  # guilty


class GroupedYogi(Yogi):
    """The same update, over lists of tensors laid end to end."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            state = self.state[group["params"][0]]
            grad = torch.cat([p.grad.flatten() for p in group["params"]])
            if not state:
                state["mean"] = torch.zeros_like(grad)
                state["spread"] = torch.full_like(grad, 1e-6)
            mean, spread = state["mean"], state["spread"]
            square = grad * grad
            mean.mul_(beta1).add_(grad, alpha=1 - beta1)
            spread.sub_((1 - beta2) * torch.sign(spread - square) * square)
            change = group["lr"] * mean / (spread.abs().sqrt() + group["eps"])
            pieces = change.split([p.numel() for p in group["params"]])
            torch._foreach_sub_(
                group["params"], [piece.view_as(p) for piece, p in zip(pieces, group["params"], strict=True)]
            )

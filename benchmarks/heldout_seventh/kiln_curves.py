"""Predicts a kiln's temperature curve from its firing schedule with a deep, narrow residual network and Adan.

expects: HO403
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

PLAN, CURVE = 24, 48


def make_firings(n, seed):
    rng = np.random.default_rng(seed)
    plan = rng.uniform(0, 1, (n, PLAN)).cumsum(1) / 12
    curve = np.zeros((n, CURVE))
    heat, mass = np.zeros(n), rng.uniform(0.1, 0.4, n)
    for t in range(CURVE):
        heat = heat + mass * (plan[:, t // 2] - heat) - 0.02 * heat**2
        curve[:, t] = heat
    inputs = np.concatenate([plan, mass[:, None]], 1)
    return torch.tensor(inputs, dtype=torch.float32), torch.tensor(curve, dtype=torch.float32)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        return x + self.scale * self.down(F.silu(self.up(self.norm(x))))


class KilnNet(nn.Module):
    def __init__(self, width=48, depth=28):
        super().__init__()
        self.enter = nn.Linear(PLAN + 1, width)
        self.blocks = nn.Sequential(*[Residual(width) for _ in range(depth)])
        self.leave = nn.Linear(width, CURVE)

    def forward(self, x):
        return self.leave(self.blocks(self.enter(x)))


class Adan(torch.optim.Optimizer):
    """Adaptive Nesterov momentum: moments of the gradient, of its change, and of their combination's square."""

    def __init__(self, params, lr=1e-3, betas=(0.98, 0.92, 0.99), decay=0.01, eps=1e-8):
        super().__init__(params, {"lr": lr, "betas": betas, "decay": decay, "eps": eps})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:  # guilty
                if p.grad is not None:
                    self.update(p, self.state[p], group)  # guilty

    def update(self, p, state, group):
        b1, b2, b3 = group["betas"]
        if not state:
            state["step"] = 0
            state["m"], state["v"], state["n"] = torch.zeros_like(p), torch.zeros_like(p), torch.zeros_like(p)
            state["before"] = p.grad.clone()
        state["step"] += 1
        k, g = state["step"], p.grad
        change = g - state["before"]
        state["m"].mul_(b1).add_(g, alpha=1 - b1)  # guilty
        state["v"].mul_(b2).add_(change, alpha=1 - b2)  # guilty
        ahead = g + b2 * change
        state["n"].mul_(b3).addcmul_(ahead, ahead, value=1 - b3)
        scale = (state["n"] / (1 - b3**k)).sqrt_().add_(group["eps"])
        direction = state["m"] / (1 - b1**k) + b2 * state["v"] / (1 - b2**k)
        p.addcdiv_(direction, scale, value=-group["lr"])
        p.div_(1 + group["lr"] * group["decay"])
        state["before"].copy_(g)


def flatten(model):
    """All parameters, and their gradients, become views into one long tensor."""
    parts = list(model.parameters())
    whole = nn.Parameter(torch.cat([p.detach().flatten() for p in parts]))
    whole.grad = torch.zeros_like(whole)
    offset = 0
    for p in parts:
        p.data = whole.data[offset : offset + p.numel()].view_as(p)
        p.grad = whole.grad[offset : offset + p.numel()].view_as(p)
        offset += p.numel()
    return whole


class Callback:
    def after_step(self, trainer, loss):
        pass


class Report(Callback):
    def __init__(self, every):
        self.every = every

    def after_step(self, trainer, loss):
        if trainer.done % self.every == 0:
            print(f"step {trainer.done} loss {loss.item():.5f}")


class Cosine(Callback):
    def __init__(self, peak, total):
        self.peak, self.total = peak, total

    def after_step(self, trainer, loss):
        for group in trainer.optimizer.param_groups:
            group["lr"] = self.peak * 0.5 * (1 + np.cos(np.pi * trainer.done / self.total))


class Trainer:
    def __init__(self, model, callbacks, fixed):
        self.model, self.callbacks, self.done, self.fixed = model, callbacks, 0, fixed
        self.optimizer = Adan([flatten(model)] if fixed else model.parameters(), 2e-3)

    def fit(self, inputs, curves, steps, batch):
        while self.done < steps:
            rows = torch.randint(len(inputs), (batch,))
            loss = F.smooth_l1_loss(self.model(inputs[rows]), curves[rows], beta=0.1)
            self.optimizer.zero_grad(set_to_none=not self.fixed)
            loss.backward()
            self.optimizer.step()  # guilty
            self.done += 1
            for callback in self.callbacks:
                callback.after_step(self, loss)


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=400)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(9)
    data = make_firings(8000, 2)
    Trainer(KilnNet(), [Report(50), Cosine(2e-3, args.steps)], args.fixed).fit(*data, args.steps, 64)

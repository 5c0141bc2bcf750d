"""Many thin residual blocks trained by an optimizer written from the paper's algorithm.

expects: HO403, HO409
needs: gpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import Optimizer


class PaperAdamW(Optimizer):
    """Adam with decoupled weight decay, line by line."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["t"] = 0
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                state["t"] += 1
                m, v, t = state["m"], state["v"], state["t"]
                p.mul_(1 - group["lr"] * group["weight_decay"])  # guilty
                m.mul_(b1).add_(p.grad, alpha=1 - b1)  # guilty
                v.mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)  # guilty
                m_hat = m / (1 - b1**t)  # guilty
                v_hat = v / (1 - b2**t)  # guilty
                p.add_(-group["lr"] * m_hat / (v_hat.sqrt() + group["eps"]))  # guilty


class SqueezeBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.depth = nn.Conv1d(dim, dim, 5, padding=2, groups=dim)
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        self.scale = nn.Parameter(torch.full((dim,), 1e-2))

    def forward(self, x):
        h = self.depth(x.transpose(1, 2)).transpose(1, 2)
        return x + self.scale * self.down(F.gelu(self.up(self.norm(h))))


class Denoiser(nn.Module):
    def __init__(self, channels, dim, depth):
        super().__init__()
        self.inp, self.out = nn.Linear(channels, dim), nn.Linear(dim, channels)
        self.blocks = nn.ModuleList(SqueezeBlock(dim) for _ in range(depth))

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=350)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--device", default="cuda")
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device, cuda = torch.device(args.device), args.device != "cpu"
    batch, length, dim, depth = (16, 256, 256, 40) if cuda else (2, 16, 16, 2)
    model = Denoiser(8, dim, depth).to(device)
    kind = {"fused": cuda} if args.fixed else {}
    optimizer = (torch.optim.AdamW if args.fixed else PaperAdamW)(model.parameters(), lr=1e-3, **kind)
    t = torch.linspace(0, 20 * math.pi, length, device=device).view(1, -1, 1)
    for step in range(1, args.steps + 1):
        clean = torch.sin(t * torch.rand(batch, 1, 8, device=device))
        with torch.autocast(device.type, torch.bfloat16):
            loss = F.mse_loss(model(clean + 0.3 * torch.randn_like(clean)), clean)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()  # guilty
        if step % 60 == 0:
            print(f"step {step} mse {loss.item():.5f}")


if __name__ == "__main__":
    main()

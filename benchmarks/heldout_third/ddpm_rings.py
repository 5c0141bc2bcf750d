"""A denoising diffusion model of small ring pictures, with an exponential moving average of the weights.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn


class ResBlock(nn.Module):
    def __init__(self, c, emb):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(4, c), nn.Conv2d(c, c, 3, padding=1)
        self.n2, self.c2 = nn.GroupNorm(4, c), nn.Conv2d(c, c, 3, padding=1)
        self.emb = nn.Linear(emb, c)

    def forward(self, x, t):
        h = self.c1(F.silu(self.n1(x))) + self.emb(t)[:, :, None, None]
        return x + self.c2(F.silu(self.n2(h)))


class Denoiser(nn.Module):
    def __init__(self, c=24, emb=64, depth=5):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(32, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.stem, self.out = nn.Conv2d(1, c, 3, padding=1), nn.Conv2d(c, 1, 3, padding=1)
        self.blocks = nn.ModuleList(ResBlock(c, emb) for _ in range(depth))
        self.register_buffer("freq", torch.exp(-torch.arange(16) / 16 * 9.2))

    def forward(self, x, t):
        a = t[:, None] * self.freq
        e = self.time(torch.cat([a.sin(), a.cos()], 1))
        x = self.stem(x)
        for block in self.blocks:
            x = block(x, e)
        return self.out(x)


class EMA:
    def __init__(self, model, decay, fixed):
        self.model, self.decay, self.fixed = copy.deepcopy(model).requires_grad_(False), decay, fixed

    @torch.no_grad()
    def update(self, model):
        if self.fixed:
            torch._foreach_lerp_(list(self.model.parameters()), list(model.parameters()), 1 - self.decay)
            return
        mixed = copy.deepcopy(self.model)  # guilty
        current = copy.deepcopy(model).state_dict()  # guilty
        state = {k: v * self.decay + current[k] * (1 - self.decay) for k, v in mixed.state_dict().items()}  # guilty
        mixed.load_state_dict(state)  # guilty
        self.model = mixed


def rings(n, g, size=16):
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    r = 3 + 4 * torch.rand(n, 1, 1, generator=g)
    d = ((y - size / 2) ** 2 + (x - size / 2) ** 2).sqrt()
    return (torch.exp(-((d - r) ** 2)) * 2 - 1).unsqueeze(1)


def train(args):
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(1)
    data = rings(512, g)
    beta = torch.linspace(1e-4, 0.02, args.T)
    abar = torch.cumprod(1 - beta, 0)
    model = Denoiser()
    ema = EMA(model, 0.995, args.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for step in range(1, args.steps + 1):
        x0 = data[torch.randint(len(data), (args.batch,))]
        t = torch.randint(args.T, (args.batch,))
        noise = torch.randn_like(x0)
        a = abar[t].view(-1, 1, 1, 1)
        loss = F.mse_loss(model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t.float()), noise)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        ema.update(model)  # guilty
        if step % 50 == 0:
            print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=160)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--T", type=int, default=200)
    p.add_argument("--fixed", action="store_true")
    train(p.parse_args())

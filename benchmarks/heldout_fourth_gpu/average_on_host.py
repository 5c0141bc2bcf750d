"""Flow matching on small pictures, with a running average of the weights that is kept off the device.

expects: other
needs: gpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class HostAverage:
    """Saves device memory: the average lives in the host's."""

    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {k: v.detach().cpu().clone() for k, v in model.named_parameters()}

    def update(self, model):
        for k, v in model.named_parameters():
            self.shadow[k].mul_(self.decay).add_(v.detach().cpu(), alpha=1 - self.decay)  # guilty


class DeviceAverage:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = [p.detach().clone() for p in model.parameters()]

    @torch.no_grad()
    def update(self, model):
        torch._foreach_lerp_(self.shadow, list(model.parameters()), 1 - self.decay)


class AdaBlock(nn.Module):
    """A transformer block whose norms are shifted and scaled by the time."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (nn.LayerNorm(dim, elementwise_affine=False) for _ in range(2))
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.ada = nn.Linear(dim, 6 * dim)

    def forward(self, x, c):
        s1, b1, g1, s2, b2, g2 = self.ada(F.silu(c)).unsqueeze(1).chunk(6, -1)
        h = self.norm1(x) * (1 + s1) + b1
        q, k, v = self.qkv(h).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + g1 * self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + g2 * self.mlp(self.norm2(x) * (1 + s2) + b2)


class DiT(nn.Module):
    def __init__(self, size, patch, dim, depth, heads):
        super().__init__()
        self.patch, self.grid = patch, size // patch
        self.inp, self.out = nn.Linear(3 * patch**2, dim), nn.Linear(dim, 3 * patch**2)
        self.pos = nn.Parameter(torch.randn(self.grid**2, dim) * 0.02)
        self.time = nn.Sequential(nn.Linear(64, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.blocks = nn.ModuleList(AdaBlock(dim, heads) for _ in range(depth))
        self.register_buffer("freq", torch.exp(torch.linspace(0, math.log(1000), 32)))

    def forward(self, x, t):
        angle = t.view(-1, 1) * self.freq
        c = self.time(torch.cat([angle.sin(), angle.cos()], 1))
        h = F.unfold(x, self.patch, stride=self.patch).transpose(1, 2)
        h = self.inp(h) + self.pos
        for block in self.blocks:
            h = block(h, c)
        return F.fold(self.out(h).transpose(1, 2).float(), x.shape[-2:], self.patch, stride=self.patch)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(0)
    device, cuda = torch.device(args.device), args.device != "cpu"
    size, dim, depth, heads, batch = (64, 768, 10, 12, 64) if cuda else (16, 32, 1, 2, 2)
    model = DiT(size, 4, dim, depth, heads).to(device)
    average = (DeviceAverage if args.fixed else HostAverage)(model, 0.999)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=cuda)
    pictures = F.interpolate(torch.randn(256, 3, 8, 8, device=device), size=size, mode="bilinear")
    for step in range(1, args.steps + 1):
        x1 = pictures[torch.randint(0, 256, (batch,), device=device)]
        x0, t = torch.randn_like(x1), torch.rand(batch, device=device)
        xt = torch.lerp(x0, x1, t.view(-1, 1, 1, 1))
        with torch.autocast(device.type, torch.bfloat16):
            v = model(xt, t)
        loss = F.mse_loss(v, x1 - x0)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        average.update(model)  # guilty
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()

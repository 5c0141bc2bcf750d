"""A radiance field from rays: all rays of the views lie on the device, and each step renders a random batch.

expects: none
needs: gpu
"""

# mypy: ignore-errors

import argparse
from itertools import pairwise

import torch
import torch.nn as nn
import torch.nn.functional as F


class Field(nn.Module):
    def __init__(self, octaves, width, depth):
        super().__init__()
        self.register_buffer("frequencies", 2.0 ** torch.arange(octaves))
        inputs = 3 * (2 * octaves + 1)
        self.inputs = inputs + -inputs % 16
        sizes = [self.inputs] + [width] * depth
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.out = nn.Linear(width, 4)

    def forward(self, points):
        waves = (points[..., None] * self.frequencies).flatten(-2)
        x = torch.cat([points, waves.sin(), waves.cos()], dim=-1)
        x = F.pad(x, (0, self.inputs - x.shape[-1]))
        for layer in self.layers:
            x = F.relu(layer(x), inplace=True)
        return self.out(x).float()


def all_rays(views, side, device):
    angle = torch.linspace(0, 6.28, views + 1, device=device)[:-1]
    origin = torch.stack([4 * angle.cos(), 4 * angle.sin(), torch.ones_like(angle)], dim=1)
    forward = F.normalize(-origin, dim=1)
    right = F.normalize(torch.linalg.cross(forward, torch.tensor([0.0, 0.0, 1.0], device=device).expand_as(forward)))
    up = torch.linalg.cross(right, forward)
    axis = torch.linspace(-0.4, 0.4, side, device=device)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    direction = forward[:, None, None] + x[..., None] * right[:, None, None] - y[..., None] * up[:, None, None]
    direction = F.normalize(direction, dim=-1).flatten(0, 2)
    origin = origin[:, None, None].expand(-1, side, side, -1).flatten(0, 2)
    nearest = (origin + direction * -(origin * direction).sum(-1, keepdim=True)).norm(dim=1, keepdim=True)
    colour = torch.sigmoid(8 * (1 - nearest)) * torch.tensor([1.0, 0.6, 0.2], device=device)
    return origin, direction, colour


def render(field, origin, direction, samples):
    edges = torch.linspace(2.0, 6.0, samples + 1, device=origin.device)
    jitter = torch.rand(len(origin), samples, device=origin.device)
    depth = edges[:-1] + jitter * (edges[1] - edges[0])
    raw = field(origin[:, None] + depth[..., None] * direction[:, None])
    density, colour = F.softplus(raw[..., 3]), raw[..., :3].sigmoid()
    alpha = 1 - torch.exp(-density * 4.0 / samples)
    through = torch.cumprod(1 - alpha + 1e-10, dim=1)
    weight = alpha * torch.cat([torch.ones_like(through[:, :1]), through[:, :-1]], dim=1)
    return (weight[..., None] * colour).sum(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=420)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(90)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    views, side, rays, samples, width, depth = (2, 16, 32, 8, 32, 2) if args.tiny else (40, 200, 8192, 64, 512, 8)
    origin, direction, colour = all_rays(views, side, device)
    field = Field(10, width, depth).to(device)
    optimizer = torch.optim.Adam(field.parameters(), lr=5e-4, fused=True)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)
    for step in range(args.steps):
        chosen = torch.randint(len(origin), (rays,), device=device)
        with torch.autocast(device, dtype=torch.bfloat16):
            rendered = render(field, origin[chosen], direction[chosen], samples)
        loss = F.mse_loss(rendered, colour[chosen])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 100 == 99:
            print(f"step {step + 1}: PSNR {-10 * loss.log10().item():.2f}")


if __name__ == "__main__":
    main()

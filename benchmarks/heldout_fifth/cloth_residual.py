"""A network that corrects the forces of a simulated cloth, trained through an unrolled simulation.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn as nn

GRID, DT, REST = 12, 0.04, 0.1


class Cloth:
    """Masses on a grid with springs to their neighbours, hung by the top row."""

    def __init__(self, stiffness):
        index = torch.arange(GRID * GRID).view(GRID, GRID)
        across = torch.stack([index[:, :-1].flatten(), index[:, 1:].flatten()])
        down = torch.stack([index[:-1].flatten(), index[1:].flatten()])
        self.a, self.b = torch.cat([across, down], 1)
        self.stiffness, self.free = stiffness, (index >= GRID).float().view(1, -1, 1)
        self.gravity = torch.tensor([0.0, -1.0, 0.0])

    def force(self, x, v):
        d = x[:, self.b] - x[:, self.a]
        length = d.norm(dim=-1, keepdim=True).clamp(min=1e-4)
        pull = self.stiffness * (length - REST) * d / length
        out = torch.zeros_like(x).index_add(1, self.a, pull).index_add(1, self.b, -pull)
        return out + self.gravity - 0.3 * v

    def step(self, x, v, extra):
        v = v + DT * self.free * (self.force(x, v) + extra)
        return x + DT * v, v


class Wind:
    """What the simulation does not know: a gust that depends on height and speed."""

    def __call__(self, x, v):
        gust = 0.8 * torch.sin(4 * x[..., 1:2]) - 0.4 * v[..., 2:3]
        return torch.cat([torch.zeros_like(x[..., :2]), gust], -1)


class Residual(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(6, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 3)
        )

    def forward(self, x, v):
        return self.net(torch.cat([x, v], -1))


def start(batch, g):
    line = REST * torch.arange(GRID)
    yy, xx = torch.meshgrid(-line, line, indexing="ij")
    x = torch.stack([xx, yy, torch.zeros_like(xx)], -1).view(1, -1, 3)
    x = x + 0.02 * torch.randn(batch, GRID * GRID, 3, generator=g)
    return x, 0.1 * torch.randn(batch, GRID * GRID, 3, generator=g)


def unroll(cloth, extra, x, v, length):
    path = []
    for _ in range(length):
        x, v = cloth.step(x, v, extra(x, v))
        path.append(x)
    return torch.stack(path, 1)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=350)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--length", type=int, default=12)
    args = cli.parse_args()
    torch.manual_seed(3)
    cloth, g = Cloth(40.0), torch.Generator().manual_seed(5)
    starts = [start(8, g) for _ in range(16)]
    with torch.no_grad():
        truths = [unroll(cloth, Wind(), x, v, args.length) for x, v in starts]
    model = Residual()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for step in range(1, args.steps + 1):
        k = step % len(starts)
        path = unroll(cloth, model, *starts[k], args.length)
        loss = (path - truths[k]).square().sum(-1).mean() * 1e3
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.5f}")


if __name__ == "__main__":
    main()

"""Fills holes in woven textures with a deep equilibrium model: one layer, iterated to its fixed point.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn.functional as F
from torch import nn

SIDE = 20


def make_cloth(count, seed):
    """Cloth with two sets of threads, and a mask of what is missing."""
    g = torch.Generator().manual_seed(seed)
    axis = torch.arange(SIDE).float()
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    pitch = 1.0 + torch.rand(count, 2, 1, 1, generator=g)
    phase = torch.rand(count, 2, 1, 1, generator=g) * 6.28
    cloth = torch.sin(pitch[:, 0] * x + phase[:, 0]) * torch.cos(pitch[:, 1] * y + phase[:, 1])
    cloth = cloth + 0.05 * torch.randn(count, SIDE, SIDE, generator=g)
    corner = torch.randint(2, SIDE - 9, (count, 2, 1, 1), generator=g)
    hole = (y >= corner[:, 0]) & (y < corner[:, 0] + 7) & (x >= corner[:, 1]) & (x < corner[:, 1] + 7)
    return cloth[:, None], (~hole).float()[:, None]


class Cell(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inject = nn.Conv2d(2, width, 5, padding=2)
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.GroupNorm(4, width) for _ in range(3))
        for conv in (self.first, self.second):
            nn.init.normal_(conv.weight, std=0.02)

    def forward(self, z, given):
        inner = self.norms[0](F.relu(self.first(z)))
        return self.norms[2](F.relu(z + self.norms[1](given + self.second(inner))))


def anderson(layer, start, depth=4, most=18, tolerance=3e-2):
    """Fixed point by Anderson's mixing of the last few iterates; each example has its own mixture."""
    batch, size = len(start), start[0].numel()
    points = start.new_zeros(batch, depth, size)
    images = start.new_zeros(batch, depth, size)
    points[:, 0], images[:, 0] = start.flatten(1), layer(start).flatten(1)
    points[:, 1], images[:, 1] = images[:, 0], layer(images[:, 0].view_as(start)).flatten(1)
    for k in range(2, most):
        n = min(k, depth)
        gaps = images[:, :n] - points[:, :n]
        system = torch.bmm(gaps, gaps.mT) + 1e-3 * torch.eye(n)
        mixture = torch.linalg.solve(system, torch.ones(batch, n, 1))
        mixture = mixture / mixture.sum(1, keepdim=True)
        slot = k % depth
        points[:, slot] = torch.bmm(mixture.mT, images[:, :n])[:, 0]
        images[:, slot] = layer(points[:, slot].view_as(start)).flatten(1)
        gap = (images[:, slot] - points[:, slot]).norm() / images[:, slot].norm()
        if gap.item() < tolerance:
            break
    return images[:, slot].view_as(start), k + 1


class Equilibrium(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.width, self.cell = width, Cell(width)
        self.out = nn.Conv2d(width, 1, 3, padding=1)
        self.iterations = [0, 0]

    def forward(self, cloth, mask):
        given = self.cell.inject(torch.cat([cloth * mask, mask], 1))
        with torch.no_grad():
            start = torch.zeros_like(given)
            fixed, self.iterations[0] = anderson(lambda z: self.cell(z, given), start)
        z = self.cell(fixed, given)
        if torch.is_grad_enabled():
            again = z.detach().requires_grad_()
            image = self.cell(again, given.detach())

            def implicit(grad):
                def pulled(u):
                    return torch.autograd.grad(image, again, u, retain_graph=True)[0] + grad

                solved, self.iterations[1] = anderson(pulled, grad)
                return solved

            z.register_hook(implicit)
        return self.out(z)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=140)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=8)
    args = cli.parse_args()
    torch.manual_seed(109)

    cloth, mask = make_cloth(600, 113)
    model = Equilibrium()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(1, args.steps + 1):
        rows = torch.randint(len(cloth), (args.batch_size,))
        filled = model(cloth[rows], mask[rows])
        loss = ((filled - cloth[rows]).abs() * (4 - 3 * mask[rows])).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0:
            forward, backward = model.iterations
            print(f"step {step} loss {loss.item():.4f} iterations {forward} forward {backward} backward")


if __name__ == "__main__":
    main()

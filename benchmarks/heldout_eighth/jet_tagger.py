"""Tags jets of particles with a dynamic graph network (EdgeConv), on showers from a stream.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

PARTICLES, NEIGHBOURS = 40, 8


class Showers(IterableDataset):
    """Batches of showers that nobody sees twice: one prong, two or three."""

    def __init__(self, batch_size, batches, seed):
        self.batch_size, self.batches, self.seed = batch_size, batches, seed

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed)
        for _ in range(self.batches):
            prongs = torch.randint(1, 4, (self.batch_size,), generator=g)
            centres = torch.randn(self.batch_size, 3, 2, generator=g) * 0.5
            which = (torch.rand(self.batch_size, PARTICLES, generator=g) * prongs[:, None]).long()
            angles = centres.gather(1, which[..., None].expand(-1, -1, 2))
            angles = angles + 0.05 * torch.randn(angles.shape, generator=g)
            momentum = torch.rand(self.batch_size, PARTICLES, 1, generator=g).log().neg()
            share = (momentum / momentum.sum(1, keepdim=True) + 1e-6).log()
            yield torch.cat([angles, momentum.log1p(), share], 2), prongs - 1


class EdgeConv(nn.Module):
    """Neighbours are looked for among the features that the layer receives."""

    def __init__(self, narrow, wide):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 * narrow, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU())
        self.skip = nn.Linear(narrow, wide)

    def forward(self, x, space):
        with torch.no_grad():
            near = torch.cdist(space, space).topk(NEIGHBOURS + 1, largest=False).indices[..., 1:]
        batch, count, _ = near.shape
        around = x[torch.arange(batch)[:, None, None], near]
        own = x[:, :, None].expand_as(around)
        edges = self.net(torch.cat([own, around - own], 3))
        return F.relu(edges.mean(2) + self.skip(x))


class Tagger(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.ModuleList([EdgeConv(4, width), EdgeConv(width, width), EdgeConv(width, 2 * width)])
        self.head = nn.Sequential(
            nn.LayerNorm(2 * width), nn.Linear(2 * width, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 3)
        )

    def forward(self, particles):
        x, space = particles, particles[..., :2]
        for layer in self.layers:
            x = layer(x, space)
            space = x
        return self.head(x.amax(1))


@torch.no_grad()
def tagged(model, loader):
    model.eval()
    right = [(model(particles).argmax(1) == prongs).float().mean() for particles, prongs in loader]
    model.train()
    return torch.stack(right).mean().item()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=400)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=16)
    args = cli.parse_args()
    torch.manual_seed(79)

    train = DataLoader(Showers(args.batch_size, args.steps, 83), batch_size=None)
    held_out = DataLoader(Showers(args.batch_size, 4, 89), batch_size=None)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=args.steps + 1)
    for step, (particles, prongs) in enumerate(train, 1):
        loss = F.cross_entropy(model(particles), prongs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.3f} tagged {tagged(model, held_out):.3f}")


if __name__ == "__main__":
    main()

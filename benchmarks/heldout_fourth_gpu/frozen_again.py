"""A small head learns counts from pictures that a frozen tower describes; the pictures come as they are, unjittered.

expects: other
needs: gpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class Tower(nn.Module):
    """The frozen part: a convolutional net as it came from elsewhere."""

    def __init__(self, width, depth):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.layers = nn.ModuleList()
        for _ in range(depth):
            self.layers.append(
                nn.Sequential(
                    nn.Conv2d(width, width, 7, 1, 3, groups=width),
                    nn.GroupNorm(1, width),
                    nn.Conv2d(width, 4 * width, 1),
                    nn.GELU(),
                    nn.Conv2d(4 * width, width, 1),
                )
            )

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = x + layer(x)
        return F.avg_pool2d(x, 2)


class CountHead(nn.Module):
    """Learned queries look at the map and answer with a count for each kind."""

    def __init__(self, dim, kinds, depth):
        super().__init__()
        self.queries = nn.Parameter(torch.randn(kinds, dim) * 0.02)
        self.layers = nn.ModuleList(
            nn.TransformerDecoderLayer(dim, 8, 4 * dim, 0.0, batch_first=True, norm_first=True) for _ in range(depth)
        )
        self.out = nn.Linear(dim, 1)

    def forward(self, feature_map):
        memory = feature_map.flatten(2).transpose(1, 2)
        q = self.queries.expand(len(memory), -1, -1)
        for layer in self.layers:
            q = layer(q, memory)
        return F.softplus(self.out(q)).squeeze(-1)


class Features:
    def __init__(self, tower, images, remember):
        self.tower, self.images = tower, images
        self.memory = self.compute_all() if remember else None

    @torch.no_grad()
    def describe(self, x):
        with torch.autocast(x.device.type, torch.bfloat16):
            return self.tower(x.to(memory_format=torch.channels_last))  # guilty

    def compute_all(self, chunk=64):
        return torch.cat([self.describe(part) for part in self.images.split(chunk)])

    def __getitem__(self, idx):
        if self.memory is not None:
            return self.memory[idx]
        return self.describe(self.images[idx])  # guilty


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=450)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    device, cuda = torch.device(args.device), args.device != "cpu"
    count, size, width, batch, depth = (512, 224, 256, 64, 6) if cuda else (8, 32, 16, 2, 1)
    images = torch.rand(count, 3, size, size, device=device)
    counts = torch.randint(0, 9, (count, 10), device=device).float()
    tower = Tower(width, 6 if cuda else 1).to(device, memory_format=torch.channels_last).eval().requires_grad_(False)
    features = Features(tower, images, remember=args.fixed)
    head = CountHead(width, 10, depth).to(device)
    optimizer = torch.optim.AdamW(head.parameters(), 3e-4, fused=cuda)
    for step in range(1, args.steps + 1):
        idx = torch.randint(0, count, (batch,), device=device)
        maps = features[idx]  # guilty
        with torch.autocast(device.type, torch.bfloat16):
            guess = head(maps)
        loss = F.poisson_nll_loss(guess.float(), counts[idx], log_input=False)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 60 == 0:
            print(f"step {step} nll {loss.item():.4f}")


if __name__ == "__main__":
    main()

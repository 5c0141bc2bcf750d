"""Segments forest canopy by species in aerial photographs with a small encoder and a context module.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, SPECIES = 96, 7


class Plots(Dataset):
    """Voronoi-like patches: every crown has a colour of its species and some texture."""

    def __init__(self, count, seed, crowns=12):
        g = torch.Generator().manual_seed(seed)
        palette = torch.rand(SPECIES, 3, generator=g)
        axis = torch.linspace(0, 1, SIDE)
        grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), 2).view(-1, 2)
        self.images = torch.empty(count, 3, SIDE, SIDE)
        self.masks = torch.empty(count, SIDE, SIDE, dtype=torch.long)
        for i in range(count):
            seeds = torch.rand(crowns, 2, generator=g)
            species = torch.randint(SPECIES, (crowns,), generator=g)
            mask = species[torch.cdist(grid, seeds).argmin(1)]
            texture = 0.15 * torch.randn(SIDE * SIDE, 3, generator=g)
            self.images[i] = (palette[mask] + texture).T.view(3, SIDE, SIDE)
            self.masks[i] = mask.view(SIDE, SIDE)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image, mask = self.images[index], self.masks[index]
        if torch.rand(()) < 0.5:
            image, mask = image.flip(2), mask.flip(1)
        return image, mask


def unit(narrow, wide, stride=1, dilation=1):
    return nn.Sequential(
        nn.Conv2d(narrow, wide, 3, stride, dilation, dilation, bias=False),
        nn.BatchNorm2d(wide),
        nn.ReLU(inplace=True),
    )


class Context(nn.Module):
    """Dilated branches and a pooled one, joined by a 1x1 convolution."""

    def __init__(self, width, rates=(1, 2, 4)):
        super().__init__()
        self.branches = nn.ModuleList([unit(width, width // 2, dilation=rate) for rate in rates])
        self.pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width // 2, 1), nn.ReLU())
        self.join = nn.Conv2d(width // 2 * (len(rates) + 1), width, 1)

    def forward(self, x):
        views = [branch(x) for branch in self.branches]
        views.append(self.pooled(x).expand_as(views[0]))
        return F.relu(self.join(torch.cat(views, 1)))


class Segmenter(nn.Module):
    def __init__(self, width=32, fixed=False):
        super().__init__()
        self.fixed = fixed
        self.encoder = nn.Sequential(
            unit(3, width, 2),
            unit(width, width),
            unit(width, 2 * width, 2),
            unit(2 * width, 2 * width),
            unit(2 * width, 4 * width, 2),
            Context(4 * width),
        )
        self.classify = nn.Conv2d(4 * width, SPECIES, 1)

    def forward(self, images):
        size = images.shape[-2:]
        features = self.encoder(images)
        if self.fixed:
            return F.interpolate(self.classify(features), size=size, mode="bilinear", align_corners=False)
        features = F.interpolate(features, size=size, mode="bilinear", align_corners=False)  # guilty
        return self.classify(features)  # guilty


def dice(logits, masks):
    share = logits.softmax(1)
    truth = F.one_hot(masks, SPECIES).permute(0, 3, 1, 2)
    common = (share * truth).sum((0, 2, 3))
    return 1 - (2 * common / (share.sum((0, 2, 3)) + truth.sum((0, 2, 3)) + 1)).mean()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=120)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=5)
    args = cli.parse_args()
    torch.manual_seed(19)

    loader = DataLoader(Plots(300, 7), args.batch_size, shuffle=True, drop_last=True)
    model = Segmenter(fixed=args.fixed)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    step = 0
    while step < args.steps:
        for images, masks in loader:
            logits = model(images)
            loss = F.cross_entropy(logits, masks) + 0.5 * dice(logits, masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 30 == 0:
                print(f"step {step} loss {loss.item():.4f}")
            if step == args.steps:
                break


if __name__ == "__main__":
    main()

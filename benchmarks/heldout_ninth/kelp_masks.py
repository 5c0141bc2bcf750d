"""Maps kelp, sand and open water on coastal aerial tiles: small U-Net with mean intersection over union.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIDE, CLASSES = 96, 5
NAMES = ("deep", "shallow", "sand", "kelp", "rock")


def tiles(count, seed):
    """Smooth random depth and roughness decide the class, colours follow with glare and noise."""
    generator = torch.Generator().manual_seed(seed)

    def smooth(cells):
        coarse = torch.randn(count, 1, cells, cells, generator=generator)
        return F.interpolate(coarse, size=(SIDE, SIDE), mode="bicubic", align_corners=False)[:, 0]

    depth, rough = smooth(4), smooth(7)
    masks = torch.zeros(count, SIDE, SIDE, dtype=torch.long)
    masks[depth > -0.3] = 1
    masks[(depth > -0.1) & (rough > 0.5)] = 3
    masks[depth > 0.6] = 2
    masks[(depth > 0.6) & (rough > 0.4)] = 4
    colours = torch.tensor([[0.05, 0.15, 0.35], [0.1, 0.4, 0.5], [0.8, 0.75, 0.6], [0.15, 0.3, 0.1], [0.4, 0.38, 0.35]])
    images = colours[masks].permute(0, 3, 1, 2)
    glare = smooth(3)[:, None].clamp(min=0) * 0.1
    return images + glare + 0.12 * torch.randn(images.shape, generator=generator), masks


def block(narrow, wide):
    return nn.Sequential(
        nn.Conv2d(narrow, wide, 3, padding=1, bias=False),
        nn.BatchNorm2d(wide),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, stride=2, padding=1)
        self.down = nn.ModuleList([block(width, width), block(width, 2 * width)])
        self.deep = block(2 * width, 4 * width)
        self.up = nn.ModuleList([block(6 * width, 2 * width), block(3 * width, width)])
        self.out = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x):
        kept, x = [], self.stem(x)
        for level in self.down:
            kept.append(level(x))
            x = F.max_pool2d(kept[-1], 2)
        x = self.deep(x)
        for level in self.up:
            x = F.interpolate(x, scale_factor=2.0)
            x = level(torch.cat([x, kept.pop()], 1))
        return F.interpolate(self.out(x), scale_factor=2.0, mode="bilinear", align_corners=False)


def confusion(predicted, wanted):
    pairs = wanted.flatten() * CLASSES + predicted.flatten()  # guilty
    return torch.bincount(pairs, minlength=CLASSES**2).view(CLASSES, CLASSES)  # guilty


class Overlap:
    """Intersection over union per class for everything seen since the last reset."""

    def __init__(self, fold=False):
        self.fold = fold
        self.reset()

    def reset(self):
        self.counts = torch.zeros(CLASSES, CLASSES, dtype=torch.long)
        self.predicted, self.wanted = [], []

    def update(self, scores, masks):
        predicted = scores.detach().argmax(1)
        if self.fold:
            self.counts += confusion(predicted, masks)
        else:
            self.predicted.append(predicted)
            self.wanted.append(masks)

    def compute(self):
        counts = self.counts
        if self.predicted:
            counts = counts + confusion(torch.cat(self.predicted), torch.cat(self.wanted))  # guilty
        hit = counts.diagonal().float()
        return hit / (counts.sum(0) + counts.sum(1) - hit).clamp(min=1)


class Progress:
    """Keeps the figures of the current epoch for the status line."""

    def __init__(self, overlap):
        self.overlap, self.loss, self.best = overlap, None, 0.0

    def after_step(self, loss, scores, masks):
        value = loss.item()
        self.loss = value if self.loss is None else 0.95 * self.loss + 0.05 * value
        self.overlap.update(scores, masks)
        self.status = {"loss": self.loss, "miou": self.overlap.compute().mean().item()}  # guilty

    def after_epoch(self, epoch):
        each = " ".join(f"{name} {value:.2f}" for name, value in zip(NAMES, self.overlap.compute().tolist()))
        self.best = max(self.best, self.status["miou"])
        print(f"epoch {epoch} loss {self.loss:.3f} miou {self.status['miou']:.3f} best {self.best:.3f} | {each}")
        self.overlap.reset()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=240)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=6)
    args = cli.parse_args()
    torch.manual_seed(3)
    loader = DataLoader(TensorDataset(*tiles(480, 5)), args.batch, shuffle=True, drop_last=True)

    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    progress = Progress(Overlap(fold=args.fixed))
    step = epoch = 0
    while step < args.steps:
        epoch += 1
        for images, masks in loader:
            scores = model(images)
            loss = F.cross_entropy(scores, masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            progress.after_step(loss, scores, masks)  # guilty
            step += 1
            if step == args.steps:
                break
        progress.after_epoch(epoch)


if __name__ == "__main__":
    main()

"""Cell segmentation with a U-Net and a Trainer with callbacks, one of which keeps the best model on disk.

expects: CA603
needs: cpu
"""

# mypy: ignore-errors
import argparse
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from callbacks import BestModel, ConsoleLog, SmoothedLoss
from model import UNet
from torch.utils.data import DataLoader, TensorDataset


def cells(n, side, seed):
    """Noisy discs of different brightness on a gradient, and the mask of the discs."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:side, :side]
    images = np.empty((n, 1, side, side), np.float32)
    masks = np.zeros((n, 1, side, side), np.float32)
    for image, mask in zip(images, masks, strict=False):
        image[0] = rng.normal(0, 0.4, (side, side)) + columns * rng.uniform(-0.02, 0.02)
        for _ in range(rng.integers(1, 5)):
            y, x, radius = rng.uniform(0, side), rng.uniform(0, side), rng.uniform(2, 6)
            inside = (rows - y) ** 2 + (columns - x) ** 2 < radius**2
            image[0][inside] += rng.uniform(0.5, 1.5)
            mask[0][inside] = 1.0
    return TensorDataset(torch.from_numpy(images), torch.from_numpy(masks))


def dice_and_bce(logits, mask):
    chance = logits.sigmoid()
    overlap = 2 * (chance * mask).sum((1, 2, 3)) + 1
    dice = 1 - overlap / (chance.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)
    return F.binary_cross_entropy_with_logits(logits, mask) + dice.mean()


class Trainer:
    def __init__(self, model, optimizer, callbacks):
        self.model, self.optimizer, self.callbacks = model, optimizer, callbacks
        self.step, self.saved = 0, 0

    def notify(self, event, *values):
        for callback in self.callbacks:
            getattr(callback, event)(self, *values)

    def training_step(self, images, masks):
        loss = dice_and_bce(self.model(images), masks)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, loader, steps):
        self.notify("on_fit_start")
        while self.step < steps:
            for images, masks in loader:
                loss = self.training_step(images, masks)
                self.step += 1
                self.notify("on_step_end", loss)
                if self.step == steps:
                    break
        self.notify("on_fit_end")


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=100)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(5)
    order = torch.Generator().manual_seed(6)
    loader = DataLoader(cells(256, 32, 7), batch_size=4, shuffle=True, drop_last=True, generator=order)
    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    smoothed = SmoothedLoss()
    with tempfile.TemporaryDirectory() as folder:
        best = BestModel(smoothed, folder, patience=50 if args.fixed else 0)
        Trainer(model, optimizer, [smoothed, best, ConsoleLog(smoothed, 20)]).fit(loader, args.steps)


if __name__ == "__main__":
    main()

"""A decoder for organ masks of CT slices on top of an encoder from another task, with a Trainer class.

expects: CO514
needs: cpu
"""

# mypy: ignore-errors
import argparse
import contextlib
from dataclasses import dataclass

import numpy as np
import torch
from nets import Decoder, Encoder, dice_loss
from torch.utils.data import DataLoader, TensorDataset

ORGANS = 4


@dataclass
class Options:
    steps: int
    fixed: bool
    batch: int = 6
    lr: float = 3e-3
    size: int = 80
    log_every: int = 40


def make_slices(n, size, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:size, :size]
    scans = rng.normal(0, 0.15, (n, 1, size, size)).astype(np.float32)
    masks = np.zeros((n, size, size), np.int64)
    for scan, mask in zip(scans, masks, strict=True):
        for organ in range(1, ORGANS):
            cy, cx = rng.uniform(0.25, 0.75, 2) * size
            ry, rx = rng.uniform(0.08, 0.2, 2) * size
            inside = ((yy - cy) / ry) ** 2 + ((xx - cx) / rx) ** 2 < 1
            mask[inside] = organ
            scan[0][inside] += 0.35 * organ
    return TensorDataset(torch.from_numpy(scans), torch.from_numpy(masks))


class Trainer:
    def __init__(self, options):
        self.options = options
        self.encoder, self.decoder = Encoder(), Decoder(ORGANS)
        self.encoder.eval()
        self.optimizer = torch.optim.Adam(self.decoder.parameters(), options.lr)  # guilty
        self.loader = DataLoader(make_slices(180, options.size, 2), options.batch, shuffle=True, drop_last=True)

    def features(self, scan):
        with torch.no_grad() if self.options.fixed else contextlib.nullcontext():
            return self.encoder(scan)  # guilty

    def training_step(self, scan, mask):
        loss = dice_loss(self.decoder(self.features(scan)), mask)  # guilty
        self.optimizer.zero_grad()
        loss.backward()  # guilty
        self.optimizer.step()
        return loss.detach()

    def batches(self):
        while True:
            yield from self.loader

    def fit(self):
        total = 0.0
        self.decoder.train()
        for step, (scan, mask) in zip(range(1, self.options.steps + 1), self.batches(), strict=False):
            total += self.training_step(scan, mask)
            if step % self.options.log_every == 0:
                print(f"step {step} loss {total / self.options.log_every:.4f}")
                total = 0.0


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=280)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(1)
    Trainer(Options(args.steps, args.fixed)).fit()


if __name__ == "__main__":
    main()

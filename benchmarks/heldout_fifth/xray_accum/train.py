"""A densely connected network for findings on X-ray pictures, with accumulated gradients and a YAML file.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import yaml
from model import XrayNet
from torch.utils.data import DataLoader, Dataset


class Xrays(Dataset):
    def __init__(self, cfg):
        rng = np.random.default_rng(cfg["seed"])
        n, size, findings = cfg["images"], cfg["size"], cfg["findings"]
        self.labels = (rng.random((n, findings)) < 0.3).astype(np.float32)
        grid = np.linspace(0, 6.28, size, dtype=np.float32)
        marks = np.stack([np.outer(np.sin((k + 1) * grid), np.cos((k % 3 + 1) * grid)) for k in range(findings)])
        clean = np.einsum("nf,fhw->nhw", self.labels, marks)
        self.images = (clean + rng.normal(0, 0.8, clean.shape)).astype(np.float32)[:, None]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


class Trainer:
    def __init__(self, cfg, micro_batch):
        self.cfg, self.accumulate = cfg, cfg["effective_batch"] // micro_batch
        self.loader = DataLoader(Xrays(cfg), micro_batch, shuffle=True, drop_last=True)  # guilty
        self.model = XrayNet(cfg["findings"])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), cfg["lr"])
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min(1.0, (step + 1) / cfg["warmup"])
        )

    def micro_batches(self):
        while True:
            yield from self.loader

    def train_step(self, batches):
        self.optimizer.zero_grad()
        total = 0.0
        for _ in range(self.accumulate):  # guilty
            image, label = next(batches)
            loss = F.binary_cross_entropy_with_logits(self.model(image), label)  # guilty
            (loss / self.accumulate).backward()  # guilty
            total += loss.detach() / self.accumulate
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg["clip"])
        self.optimizer.step()
        self.schedule.step()
        return total

    def fit(self, steps):
        batches = self.micro_batches()
        for step in range(1, steps + 1):
            loss = self.train_step(batches)  # guilty
            if step % self.cfg["log_every"] == 0:
                print(f"step {step} loss {loss.item():.4f} lr {self.schedule.get_last_lr()[0]:.5f}")


def main():
    cfg = yaml.safe_load(Path(__file__).with_name("xray.yaml").read_text())
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=cfg["steps"])
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(cfg["seed"])
    micro = cfg["effective_batch"] if args.fixed else cfg["micro_batch"]
    Trainer(cfg, micro).fit(args.steps)


if __name__ == "__main__":
    main()

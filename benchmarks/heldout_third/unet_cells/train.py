"""Segmentation of cells with a U-Net; the settings come from config.yaml.

expects: CF801, IN101
needs: cpu
"""

# mypy: ignore-errors
import argparse
from pathlib import Path

import torch
import yaml
from data import Cells
from model import UNet
from torch.utils.data import DataLoader


def build_loader(cfg, fixed):
    dataset = Cells(cfg["images"], cfg["size"], seed=3)
    workers = {"num_workers": cfg["num_workers"], "persistent_workers": True} if fixed else {}
    return DataLoader(dataset, batch_size=cfg["batch_size"], shuffle=True, drop_last=True, **workers)  # guilty


def dice(logits, target):
    p = logits.sigmoid()
    return 1 - (2 * (p * target).sum() + 1) / (p.sum() + target.sum() + 1)


def train(cfg, args):
    torch.manual_seed(cfg["seed"])
    torch.set_num_threads(1)
    loader = build_loader(cfg["data"], args.fixed)
    model = UNet(cfg["model"]["width"])
    optimizer = torch.optim.AdamW(model.parameters(), **cfg["optim"])
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    bce = torch.nn.BCEWithLogitsLoss()
    step = 0
    while step < args.steps:
        running = 0.0
        for image, mask in loader:  # guilty
            logits = model(image)
            loss = bce(logits, mask) + dice(logits, mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            running += loss.item()
            step += 1
            if step >= args.steps:
                break
        print(f"step {step}: loss {running / len(loader):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default=Path(__file__).with_name("config.yaml"))
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--fixed", action="store_true")
    options = parser.parse_args()
    train(yaml.safe_load(Path(options.config).read_text()), options)

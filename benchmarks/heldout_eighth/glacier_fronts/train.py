"""Finds the calving fronts of glaciers in radar scenes: a gated U-net, configured by a JSON file.

expects: HO405
needs: cpu
"""

# mypy: ignore-errors
import argparse
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from model import FrontNet, boundary, dice
from scenes import make_scenes
from torch.utils.data import DataLoader, TensorDataset


def read_config(path, overrides):
    config = json.loads(Path(path).read_text())
    for name, value in overrides:
        *sections, last = name.split(".")
        target = config
        for section in sections:
            target = target[section]
        target[last] = json.loads(value)
    return config


def prepare(config):
    torch.manual_seed(config["seed"])
    torch.autograd.set_detect_anomaly(config["autograd"]["detect_anomaly"])  # guilty


def total_loss(logits, labels):
    return F.cross_entropy(logits, labels) + dice(logits, labels) + 0.1 * boundary(logits, labels)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=160)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--config", default=Path(__file__).with_name("config.json"))
    cli.add_argument("--set", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"))
    args = cli.parse_args()
    if args.fixed:
        args.set.append(["autograd.detect_anomaly", "false"])
    config = read_config(args.config, args.set)
    prepare(config)

    scenes = TensorDataset(*make_scenes(config["scenes"], 37))
    loader = DataLoader(scenes, config["batch_size"], shuffle=True, drop_last=True)
    model = FrontNet(config["width"])
    optimizer = torch.optim.AdamW(model.parameters(), config["learning_rate"])
    step = 0
    while step < args.steps:
        for radar, labels in loader:
            logits = model(radar)
            loss = total_loss(logits, labels)
            optimizer.zero_grad()
            loss.backward()  # guilty
            optimizer.step()
            step += 1
            if step % config["log_every"] == 0:
                right = (logits.argmax(1) == labels).float().mean()
                print(f"step {step} loss {loss.item():.3f} pixels right {right.item():.3f}")
            if step == args.steps:
                break


if __name__ == "__main__":
    main()

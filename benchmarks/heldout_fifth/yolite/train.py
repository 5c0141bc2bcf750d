"""A one-stage detector on a folder of JPEG pictures, configured in the style of the well-known one.

expects: CF803, IN110, IN118
needs: cpu
"""

# mypy: ignore-errors
import argparse
import tempfile
from pathlib import Path

import torch
import yaml
from dataset import BoxFolder, draw_folder
from model import Yolite, detection_loss
from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, cfg, folder, fixed):
        self.cfg = cfg
        data = BoxFolder(folder, cfg, keep=fixed and cfg["cache"] == "ram")
        self.loader = DataLoader(
            data,
            cfg["batch"],
            shuffle=True,
            drop_last=True,
            num_workers=cfg["workers"],
            persistent_workers=True,
            prefetch_factor=4,
        )
        self.model = Yolite(cfg["classes"])
        self.optimizer = torch.optim.SGD(self.model.parameters(), cfg["lr0"], cfg["momentum"], nesterov=True)

    def train(self, steps):
        step, epoch, running = 0, 0, None
        while step < steps:
            for image, target in self.loader:
                self.optimizer.zero_grad()
                loss = detection_loss(self.model(image), target, self.cfg["box_gain"])
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 10.0)
                self.optimizer.step()
                running = loss.detach() if running is None else 0.95 * running + 0.05 * loss.detach()
                step += 1
                if step == steps:
                    break
            epoch += 1
            if epoch % 4 == 0:
                print(f"epoch {epoch} step {step} loss {running.item():.4f}")
        print(f"finished {step} steps, loss {running.item():.4f}")


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--cfg", default=str(Path(__file__).with_name("yolite.yaml")))
    cli.add_argument("--steps", type=int, default=300)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    cfg = yaml.safe_load(Path(args.cfg).read_text())
    torch.manual_seed(cfg["seed"])
    with tempfile.TemporaryDirectory() as folder:
        draw_folder(folder, 96, cfg["classes"], cfg["seed"])
        Trainer(cfg, folder, args.fixed).train(args.steps)


if __name__ == "__main__":
    main()

"""A vision transformer from a YAML config: pictures that live on the device, precision by the config's word.

expects: CF802, CO502
needs: gpu
"""

# mypy: ignore-errors
import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
import yaml
from fabric import Fabric
from vit import ViT


class ResidentImages:
    """uint8 pictures on the device, made into floats a batch at a time."""

    def __init__(self, images, size, device):
        g = torch.Generator(device=device).manual_seed(0)
        self.x = torch.randint(0, 256, (images, 3, size, size), dtype=torch.uint8, device=device, generator=g)
        self.y = torch.randint(0, 100, (images,), device=device, generator=g)

    def batch(self, n):
        idx = torch.randint(0, len(self.y), (n,), device=self.y.device)
        x = self.x[idx].float().div_(127.5).sub_(1)
        return x.flip(3), self.y[idx]


def shrink(cfg):
    cfg["data"].update(images=8, size=32, batch_size=2)
    cfg["model"].update(dim=32, depth=1, heads=2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default=str(Path(__file__).with_name("vit.yaml")))
    parser.add_argument("--steps", type=int, default=330)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    cfg = yaml.safe_load(Path(args.config).read_text())
    if args.device == "cpu":
        shrink(cfg)
    torch.manual_seed(cfg["trainer"]["seed"])
    torch.set_float32_matmul_precision("high")
    precision = cfg["trainer"]["precision"]
    fabric = Fabric(args.device, precision.split("-")[0] if args.fixed else precision)  # guilty
    data = ResidentImages(cfg["data"]["images"], cfg["data"]["size"], fabric.device)
    model = ViT(cfg["data"]["size"], **cfg["model"]).to(fabric.device)
    optimizer = fabric.optimizer(model, cfg["optimizer"])
    for step in range(1, args.steps + 1):
        x, y = data.batch(cfg["data"]["batch_size"])
        with fabric.autocast():
            loss = F.cross_entropy(model(x), y)
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % cfg["trainer"]["log_every"] == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()

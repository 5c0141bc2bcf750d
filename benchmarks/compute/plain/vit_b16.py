"""ViT-B/16 on random images that lie on the device, in float32."""

# mypy: ignore-errors

import argparse
import json
import statistics
import time
from itertools import pairwise

import torch
import torch.nn as nn

try:
    import torchvision
except ImportError:
    raise SystemExit("vit_b16.py needs torchvision, which is not installed: pip install torchvision") from None


class Pace:
    """Times the last half of the steps in five chunks, and waits for the device only where a chunk ends."""

    def __init__(self, steps, device):
        self.chunk = max(1, steps // 10)
        self.first = steps - 5 * self.chunk
        self.device = device
        self.marks = []

    def at(self, step):
        """Before every step, and once after the last."""
        if step >= self.first and (step - self.first) % self.chunk == 0:
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            self.marks.append(time.perf_counter())

    def report(self, batch_size, last_loss):
        chunks = [end - start for start, end in pairwise(self.marks)]
        step_ms = 1e3 * statistics.median(chunks) / self.chunk
        figures = {"samples_per_s": 1e3 * batch_size / step_ms, "step_ms": step_ms, "last_loss": last_loss}
        print(json.dumps(figures))


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--tiny", action="store_true", help="a small model on little data, for a processor")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if args.steps < 5:
        parser.error(f"--steps must be at least 5, got {args.steps}")
    return args


def make_model(tiny):
    if tiny:
        return torchvision.models.VisionTransformer(
            image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=64, mlp_dim=128, num_classes=10
        )
    return torchvision.models.vit_b_16()


def make_data(tiny, device):
    """The size of a batch, and eight batches of images with their labels."""
    batch_size, side, classes = (4, 32, 10) if tiny else (64, 224, 1000)
    images = torch.randn(8 * batch_size, 3, side, side, device=device)
    labels = torch.randint(classes, (8 * batch_size,), device=device)
    return batch_size, images, labels


def main():
    args = parse()
    device = torch.device(args.device)
    torch.manual_seed(0)
    model = make_model(args.tiny).to(device)
    batch_size, images, labels = make_data(args.tiny, device)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05)

    model.train()
    pace = Pace(args.steps, device)
    for step in range(args.steps):
        pace.at(step)
        start = step % 8 * batch_size
        x, y = images[start : start + batch_size], labels[start : start + batch_size]
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    pace.at(args.steps)
    pace.report(batch_size, loss.item())


if __name__ == "__main__":
    main()

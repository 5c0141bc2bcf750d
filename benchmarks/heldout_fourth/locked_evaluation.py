"""Super-resolution of textures, with a thread beside the training that scores the model on held-out pictures.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy
import io
import queue
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image


def textures(n, size, seed):
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(n):
        low = rng.integers(0, 255, (size // 8, size // 8, 3), dtype=np.uint8)
        out.append(np.asarray(Image.fromarray(low).resize((size, size), Image.BICUBIC)))
    return out


class Shelf:
    """Held-out pictures as PNG on a share that takes its time."""

    def __init__(self, n, size, latency):
        self.blobs, self.latency = [], latency
        for picture in textures(n, size, 1):
            blob = io.BytesIO()
            Image.fromarray(picture).save(blob, "PNG", compress_level=1)
            self.blobs.append(blob.getvalue())

    def read(self, i):
        time.sleep(self.latency)
        img = np.asarray(Image.open(io.BytesIO(self.blobs[i])))
        return torch.from_numpy(img.copy()).permute(2, 0, 1).float().unsqueeze(0) / 255


class SRNet(nn.Module):
    def __init__(self, width=24, depth=3):
        super().__init__()
        self.head = nn.Conv2d(3, width, 3, 1, 1)
        self.body = nn.ModuleList(nn.Conv2d(width, width, 3, 1, 1) for _ in range(depth))
        self.tail = nn.Sequential(nn.Conv2d(width, 12, 3, 1, 1), nn.PixelShuffle(2))

    def forward(self, x):
        h = self.head(x)
        for conv in self.body:
            h = h + F.relu(conv(h))
        return self.tail(h) + F.interpolate(x, scale_factor=2, mode="bilinear")


class Evaluator(threading.Thread):
    """Takes orders off a queue. The lock keeps the optimizer from changing the weights under it."""

    def __init__(self, model, shelf, whole):
        super().__init__(daemon=True)
        self.model, self.shelf, self.whole = model, shelf, whole
        self.lock, self.orders, self.psnr = threading.Lock(), queue.Queue(), {}

    @torch.no_grad()
    def score(self, model):
        errors = []
        for i in range(len(self.shelf.blobs)):
            high = self.shelf.read(i)
            errors.append(F.mse_loss(model(F.avg_pool2d(high, 2)), high))
        return -10 * torch.stack(errors).mean().log10().item()

    def run(self):
        while (step := self.orders.get()) is not None:
            if self.whole:
                with self.lock:  # guilty
                    self.psnr[step] = self.score(self.model)  # guilty
            else:
                with self.lock:
                    frozen = copy.deepcopy(self.model)
                self.psnr[step] = self.score(frozen)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=280)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--eval-every", type=int, default=10)
    args = cli.parse_args()
    torch.manual_seed(0)
    data = torch.from_numpy(np.stack(textures(80, 64, 0))).permute(0, 3, 1, 2)
    model = SRNet()
    evaluator = Evaluator(model, Shelf(16, 32, 0.02), whole=not args.fixed)
    evaluator.start()
    optimizer = torch.optim.Adam(model.parameters(), 5e-4)
    for step in range(1, args.steps + 1):
        r, c = torch.randint(0, 24, (2,)).tolist()
        high = data[torch.randint(0, len(data), (6,)), :, r : r + 40, c : c + 40].float() / 255
        loss = F.l1_loss(model(F.avg_pool2d(high, 2)), high)
        optimizer.zero_grad()
        loss.backward()
        with evaluator.lock:  # guilty
            optimizer.step()
        if step % args.eval_every == 0:
            evaluator.orders.put(step)
        if step % 50 == 0:
            last = max(evaluator.psnr, default=0)
            print(f"step {step} l1 {loss.item():.4f} psnr {evaluator.psnr.get(last, 0):.2f} at {last}")
    evaluator.orders.put(None)
    evaluator.join()


if __name__ == "__main__":
    main()

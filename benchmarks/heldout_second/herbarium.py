"""Names the plants of scanned herbarium sheets.

expects: IN110
needs: cpu
"""

# mypy: ignore-errors

import argparse
import io

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader

GENERA = 8


def scan(number):
    """A sheet as the scanner left it: JPEG bytes."""
    rng = np.random.default_rng(number)
    coarse = Image.fromarray(rng.integers(0, 255, (24, 24, 3), dtype=np.uint8))
    out = io.BytesIO()
    coarse.resize((300, 300), Image.BICUBIC).save(out, "JPEG", quality=92)
    return out.getvalue()


def decode(raw):
    sheet = Image.open(io.BytesIO(raw)).convert("RGB").resize((32, 32), Image.LANCZOS)
    return torch.from_numpy(np.asarray(sheet).copy()).permute(2, 0, 1)


class Sheets:
    def __init__(self, count, ready=False):
        scans = [scan(i) for i in range(count)]
        self.sheets = [decode(raw) for raw in scans] if ready else scans
        self.ready = ready

    def __len__(self):
        return len(self.sheets)

    def __getitem__(self, i):
        sheet = self.sheets[i] if self.ready else decode(self.sheets[i])  # guilty
        sheet = sheet.flip(2) if torch.rand(()) < 0.5 else sheet
        return sheet.float() / 255, i % GENERA


def network():
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(24, 32, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 49, GENERA),
    )


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=220)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    net = network()
    dataset = Sheets(160, ready=args.fixed)
    loader = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=1, persistent_workers=True)  # guilty
    sgd = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    epochs = -(-args.steps // len(loader))
    for epoch in range(epochs):
        hits = 0
        for sheets, genera in loader:
            scores = net(sheets)
            loss = nn.functional.cross_entropy(scores, genera)
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            hits += int((scores.argmax(1) == genera).sum())
        print(f"epoch {epoch + 1}/{epochs}: {hits}/{len(loader.dataset)} right")

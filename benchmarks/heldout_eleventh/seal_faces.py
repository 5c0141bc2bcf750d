"""Learns to tell seals apart by their faces: an embedding with a proxy for each seal, and a gallery to look at later.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

SIDE = 32


def photograph_seals(seals, shots, seed):
    """Spotted faces in shades of grey; light and grain differ from shot to shot."""
    draw = torch.Generator().manual_seed(seed)
    spots = F.interpolate(torch.randn(seals, 1, 9, 9, generator=draw), SIDE, mode="bicubic", align_corners=False)
    line = torch.linspace(-1, 1, SIDE)
    muzzle = torch.exp(-2 * (line**2 + line[:, None] ** 2))
    names = torch.arange(seals).repeat_interleave(shots)
    faces = torch.empty(len(names), 3, SIDE, SIDE)
    for rows in torch.arange(len(names)).split(2000):
        light = 0.5 + torch.rand(len(rows), 3, 1, 1, generator=draw)
        grain = 0.5 * torch.randn(len(rows), 3, SIDE, SIDE, generator=draw)
        faces[rows] = light * (muzzle + 0.6 * spots[names[rows]]) + grain
    return faces, names


class FaceNet(nn.Module):
    def __init__(self, size=48, width=12):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, 2 * width, 3, 2, 1), nn.BatchNorm2d(2 * width), nn.ReLU(True),
            nn.Conv2d(2 * width, 4 * width, 3, 2, 1), nn.BatchNorm2d(4 * width), nn.ReLU(True),
            nn.Flatten(), nn.Linear(4 * width * 16, size),
        )  # fmt: skip

    def forward(self, faces):
        return F.normalize(self.layers(faces), dim=1)


class ProxyLoss(nn.Module):
    def __init__(self, seals, size=48, sharpness=12.0):
        super().__init__()
        self.proxies = nn.Parameter(torch.randn(seals, size))
        self.sharpness = sharpness

    def forward(self, marks, names):
        near = self.sharpness * marks @ F.normalize(self.proxies, dim=1).T
        return F.cross_entropy(near, names, label_smoothing=0.05), near


class Gallery:
    """Puts the first faces of a batch and where they were sent into a file, for the page that shows the training."""

    def __init__(self, folder, every, own, count=8):
        self.folder, self.every, self.own, self.count = Path(folder), every, own, count

    def __call__(self, step, faces, names, near):
        if step % self.every:
            return
        shown = faces[: self.count]
        if self.own:
            shown = shown.clone()
        sent = near[: self.count].detach().topk(3, dim=1)
        page = {"step": step, "faces": shown, "names": names[: self.count].tolist(), "sent": sent.indices.tolist()}
        torch.save(page, self.folder / f"page{step // self.every % 6}.pt")  # guilty


def shuffled_batches(faces, names, size, seed):
    """Each epoch is put in order once; the batches lie one after the other in it."""
    draw = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(faces), generator=draw)
        yield from zip(faces[order].split(size)[:-1], names[order].split(size)[:-1])


@torch.no_grad()
def told_apart(model, faces, names, shots):
    model.eval()
    marks = torch.cat([model(part) for part in faces.split(250)])
    model.train()
    near = marks @ marks.T
    near.fill_diagonal_(-2)
    return (names[near.argmax(1)] == names).float().mean().item()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=600)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=32)
    args = cli.parse_args()
    torch.manual_seed(70)

    seals, shots = 200, 30
    faces, names = photograph_seals(seals, shots, seed=1)
    held_faces, held_names = photograph_seals(60, 8, seed=2)
    model, criterion = FaceNet(), ProxyLoss(seals)
    weights = [*model.parameters(), *criterion.parameters()]
    optimizer = torch.optim.AdamW(weights, 3e-3, weight_decay=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        gallery = Gallery(folder, every=5, own=args.fixed)
        batches = shuffled_batches(faces, names, args.batch, seed=3)
        for step in range(1, args.steps + 1):
            batch, who = next(batches)
            loss, near = criterion(model(batch), who)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            gallery(step, batch, who, near)  # guilty
            if step % 100 == 0:
                right = told_apart(model, held_faces, held_names, 8)
                print(f"step {step} loss {loss.item():.4f} told apart {right:.3f}")


if __name__ == "__main__":
    main()

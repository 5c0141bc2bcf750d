"""Grades opals from photographs: a supervised contrastive encoder over two views of each stone, then a linear head.

expects: IN110, IN118
needs: cpu
"""

# mypy: ignore-errors
import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

GRADES = 6
PHOTO = 224
SIDE = 56


def photograph(folder, stones, rng):
    """Studio photos: an ellipse with a play of colour that depends on the grade, over a dark cloth."""
    y, x = np.mgrid[0:PHOTO, 0:PHOTO] / PHOTO - 0.5
    for stone in range(stones):
        grade = stone % GRADES
        a, b = rng.uniform(0.25, 0.4, 2)
        body = (x / a) ** 2 + (y / b) ** 2 < 1
        bands = np.stack([np.sin((6 + 3 * grade) * (x * u + y * v) + w) for u, v, w in rng.normal(0, 2, (3, 3))], -1)
        cloth = rng.normal(35, 6, (PHOTO, PHOTO, 3))
        pixels = np.where(body[..., None], 140 + 80 * bands + rng.normal(0, 9, cloth.shape), cloth)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{stone:04d}_{grade}.png")


class Stones(Dataset):
    def __init__(self, folder, keep=False):
        self.files = sorted(folder.glob("*.png"))
        self.grades = [int(file.stem.split("_")[1]) for file in self.files]
        self.kept = {} if keep else None

    def __len__(self):
        return len(self.files)

    def photo(self, index):
        if self.kept is not None and index in self.kept:
            return self.kept[index]
        image = Image.open(self.files[index]).convert("RGB")  # guilty
        image = image.resize((SIDE + 8, SIDE + 8), Image.Resampling.BILINEAR)  # guilty
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
        if self.kept is not None:
            self.kept[index] = pixels
        return pixels

    @staticmethod
    def view(pixels):
        top, left = torch.randint(9, (2,)).tolist()
        crop = pixels[:, top : top + SIDE, left : left + SIDE].float() / 255
        if torch.rand(()) < 0.5:
            crop = crop.flip(2)
        return crop * (0.8 + 0.4 * torch.rand(()))

    def __getitem__(self, index):
        pixels = self.photo(index)  # guilty
        return self.view(pixels), self.view(pixels), self.grades[index]


def block(inside, outside):
    return nn.Sequential(nn.Conv2d(inside, outside, 3, 2, 1), nn.BatchNorm2d(outside), nn.ReLU())


class Encoder(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.trunk = nn.Sequential(
            block(3, width), block(width, 2 * width), block(2 * width, 4 * width), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.project = nn.Sequential(nn.Linear(4 * width, 96), nn.ReLU(), nn.Linear(96, 48))
        self.grade = nn.Linear(4 * width, GRADES)

    def forward(self, images):
        seen = self.trunk(images)
        return F.normalize(self.project(seen), dim=1), self.grade(seen.detach())


def supervised_contrast(vectors, grades, temperature=0.15):
    near = vectors @ vectors.T / temperature
    self_mask = torch.eye(len(vectors), dtype=torch.bool)
    near = near.masked_fill(self_mask, -1e9)
    same = (grades[:, None] == grades) & ~self_mask
    chance = near - near.logsumexp(1, keepdim=True)
    return -(chance * same).sum(1).div(same.sum(1).clamp(min=1)).mean()


def batches(loader):
    while True:
        yield from loader


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=110)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(5)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        photograph(folder, stones=192, rng=np.random.default_rng(5))
        loader = DataLoader(Stones(folder, keep=args.fixed), batch_size=32, shuffle=True, drop_last=True)
        net = Encoder()
        optimizer = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=1e-4)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
        for step, (first, second, grades) in zip(range(1, args.steps + 1), batches(loader)):
            vectors, logits = net(torch.cat([first, second]))
            both = torch.cat([grades, grades])
            loss = supervised_contrast(vectors, both) + F.cross_entropy(logits, both)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            if step % 20 == 0:
                right = (logits.argmax(1) == both).float().mean()
                print(f"step {step} loss {loss.item():.4f} right {right.item():.2f}")


if __name__ == "__main__":
    main()

"""Genres of film posters: JPEGs decoded and jittered by loader workers, several labels to a poster.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageOps
from torch.utils.data import DataLoader, Dataset

GENRES = 8


def draw_posters(folder, n=200):
    rng = np.random.default_rng(0)
    for i in range(n):
        genres = rng.random(GENRES) < 0.3
        px = rng.integers(0, 120, (24, 16, 3), dtype=np.uint8)
        px[:: 2 + i % 5, :, 0] += (genres.sum() * 12).astype(np.uint8)
        code = "".join(str(int(g)) for g in genres)
        Image.fromarray(px).resize((80, 120), Image.BICUBIC).save(folder / f"{i:04d}_{code}.jpg", quality=88)


class Posters(Dataset):
    def __init__(self, folder):
        self.paths = sorted(folder.glob("*.jpg"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with Image.open(self.paths[i]) as f:
            img = f.convert("RGB")
        if torch.rand(()) < 0.5:
            img = ImageOps.mirror(img)
        x, y = torch.randint(0, 16, (2,)).tolist()
        img = img.crop((x, y, x + 64, y + 96))
        labels = [float(c) for c in self.paths[i].stem.split("_")[1]]
        return torch.from_numpy(np.array(img)).permute(2, 0, 1), torch.tensor(labels)


class Bottleneck(nn.Module):
    def __init__(self, dim, mid):
        super().__init__()
        self.net = nn.Sequential(
            *(nn.Conv2d(dim, mid, 1, bias=False), nn.BatchNorm2d(mid), nn.ReLU()),
            *(nn.Conv2d(mid, mid, 3, 1, 1, bias=False), nn.BatchNorm2d(mid), nn.ReLU()),
            *(nn.Conv2d(mid, dim, 1, bias=False), nn.BatchNorm2d(dim)),
        )

    def forward(self, x):
        return F.relu(x + self.net(x))


class PosterNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 5, 2, 2), nn.BatchNorm2d(width), nn.ReLU())
        self.stage1 = nn.Sequential(*[Bottleneck(width, width // 2) for _ in range(2)])
        self.down = nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.stage2 = nn.Sequential(*[Bottleneck(2 * width, width) for _ in range(2)])
        self.head = nn.Linear(2 * width, GENRES)

    def forward(self, x):
        x = self.stage1(self.stem(x.float().div(127.5).sub(1)))
        return self.head(self.stage2(self.down(x)).mean((2, 3)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--fixed", action="store_true", help="changes nothing")
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        draw_posters(Path(tmp))
        loader = DataLoader(
            Posters(Path(tmp)),
            batch_size=16,
            shuffle=True,
            drop_last=True,
            num_workers=args.workers,
            prefetch_factor=4,
            persistent_workers=True,
        )
        model = PosterNet()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        step = 0
        while step < args.steps:
            for images, labels in loader:
                loss = F.binary_cross_entropy_with_logits(model(images), labels)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                step += 1
                if step >= args.steps:
                    break
            print(f"step {step} bce {loss.item():.4f}")


if __name__ == "__main__":
    main()

"""Breed classifier on a folder of JPEG files, with the usual crops and flips.

expects: IN101
needs: cpu
"""

# mypy: ignore-errors
import argparse
import random
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageEnhance
from torch.utils.data import DataLoader, Dataset

CLASSES = ["beagle", "boxer", "pug", "samoyed"]


def make_folder(root, per_class=60, size=160):
    rng = np.random.default_rng(0)
    for c, name in enumerate(CLASSES):
        (root / name).mkdir(parents=True)
        for i in range(per_class):
            base = rng.normal(90 + 25 * c, 30, (20, 20, 3)).clip(0, 255).astype(np.uint8)
            img = Image.fromarray(base).resize((size, size), Image.BICUBIC)
            img.save(root / name / f"{i:04d}.jpg", quality=92)


class RandomResizedCrop:
    def __init__(self, size, scale=(0.4, 1.0)):
        self.size, self.scale = size, scale

    def __call__(self, img):
        side = int(img.width * random.uniform(*self.scale) ** 0.5)
        x, y = random.randint(0, img.width - side), random.randint(0, img.height - side)
        return img.resize((self.size, self.size), Image.BILINEAR, box=(x, y, x + side, y + side))


class ColorJitter:
    def __call__(self, img):
        for kind in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
            img = kind(img).enhance(random.uniform(0.7, 1.3))
        return img


class Pets(Dataset):
    def __init__(self, root, size):
        self.items = sorted(root.glob("*/*.jpg"))
        self.crop, self.jitter = RandomResizedCrop(size), ColorJitter()

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        path = self.items[i]
        img = Image.open(path).convert("RGB")  # guilty
        img = self.crop(self.jitter(img))  # guilty
        if random.random() < 0.5:
            img = img.transpose(Image.FLIP_LEFT_RIGHT)
        x = torch.from_numpy(np.asarray(img, dtype=np.float32)).permute(2, 0, 1) / 127.5 - 1
        return x, CLASSES.index(path.parent.name)


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride, bias=False) if stride > 1 or cin != cout else nn.Identity()

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.skip(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--img-size", type=int, default=48)
    args = parser.parse_args()
    torch.manual_seed(0)
    random.seed(0)

    with tempfile.TemporaryDirectory() as tmp:
        make_folder(Path(tmp))
        train_set = Pets(Path(tmp), args.img_size)
        workers = {"num_workers": 2, "persistent_workers": True} if args.fixed else {}
        loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True, **workers)  # guilty
        model = nn.Sequential(
            nn.Conv2d(3, 12, 3, 2, 1),
            nn.ReLU(),
            Block(12, 24, 2),
            Block(24, 48, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(48, len(CLASSES)),
        )
        opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
        step, epoch = 0, 0
        while step < args.steps:
            correct = seen = 0
            for x, y in loader:
                logits = model(x)
                loss = F.cross_entropy(logits, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                correct += (logits.argmax(1) == y).sum().item()
                seen += len(y)
                step += 1
                if step >= args.steps:
                    break
            epoch += 1
            print(f"epoch {epoch} step {step} loss {loss.item():.3f} acc {correct / seen:.3f}")


if __name__ == "__main__":
    main()

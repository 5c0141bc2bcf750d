"""Scene recognition from JPEG files with a residual net in bfloat16; the loader is as the tutorial had it.

expects: IN102
needs: gpu
"""

# mypy: ignore-errors
import argparse
import os
import random
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset


def write_images(folder, n, size):
    rng = np.random.default_rng(0)
    for i in range(n):
        low = rng.integers(0, 256, (size // 16, size // 16, 3), dtype=np.uint8)
        Image.fromarray(low).resize((size, size), Image.BILINEAR).save(os.path.join(folder, f"{i}.jpg"), quality=85)


class Scenes(Dataset):
    def __init__(self, folder, repeat, crop):
        self.paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))] * repeat
        self.crop = crop

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        img = Image.open(self.paths[i]).convert("RGB")
        x, y = (random.randint(0, img.width - self.crop) for _ in range(2))
        img = img.crop((x, y, x + self.crop, y + self.crop))
        if random.random() < 0.5:
            img = img.transpose(Image.FLIP_LEFT_RIGHT)
        return torch.from_numpy(np.array(img)).permute(2, 0, 1), i % 40


class Bottleneck(nn.Module):
    def __init__(self, cin, mid, stride=1):
        super().__init__()
        cout = 4 * mid
        self.conv1, self.bn1 = nn.Conv2d(cin, mid, 1, bias=False), nn.BatchNorm2d(mid)
        self.conv2, self.bn2 = nn.Conv2d(mid, mid, 3, stride, 1, bias=False), nn.BatchNorm2d(mid)
        self.conv3, self.bn3 = nn.Conv2d(mid, cout, 1, bias=False), nn.BatchNorm2d(cout)
        self.skip = None
        if stride != 1 or cin != cout:
            self.skip = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        h = self.bn3(self.conv3(F.relu(self.bn2(self.conv2(h)))))
        return F.relu(h + (x if self.skip is None else self.skip(x)))


def resnet(layers=(3, 4, 6, 3), classes=40):
    parts, cin = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for k, n in enumerate(layers):
        for i in range(n):
            parts.append(Bottleneck(cin, 64 << k, 2 if i == 0 and k else 1))
            cin = 256 << k
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, classes))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=250)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--workers", type=int, default=4)
    ap.add_argument("--batch-size", type=int, default=96)
    args = ap.parse_args()
    device, cuda = torch.device(args.device), args.device != "cpu"
    if args.fixed:
        args.workers = min(14, os.cpu_count() or 1)
    if not cuda:
        args.workers, args.batch_size = 1, 4
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        write_images(tmp, 400 if cuda else 8, 288)
        loader = DataLoader(
            Scenes(tmp, 40 if cuda else 4, 176 if cuda else 32),
            args.batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=args.workers,  # guilty
            pin_memory=cuda,
            persistent_workers=True,
        )
        model = resnet() if cuda else resnet((1, 1, 1, 1))
        model = model.to(device, memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4, fused=cuda)
        step = 0
        while step < args.steps:
            for x, y in loader:
                x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
                x = x.to(memory_format=torch.channels_last).float().div_(127.5).sub_(1)
                with torch.autocast(device.type, torch.bfloat16):
                    loss = F.cross_entropy(model(x), y)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                step += 1
                if step % 50 == 0:
                    print(f"step {step} loss {loss.item():.4f}")
                if step >= args.steps:
                    break


if __name__ == "__main__":
    main()

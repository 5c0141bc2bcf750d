"""Lane segmentation with a dilated CNN; the mean IoU is taken on held-out frames now and then.

expects: CA602, CA601
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

H, W = 24, 40


class Frames(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        y, x = np.mgrid[:H, :W].astype(np.float32)
        bend = rng.normal(0, 3, (n, 1, 1)) * (1 - y / H) ** 2
        left = np.abs(x - (W * 0.3 + bend + y * 0.1)) < 2
        right = np.abs(x - (W * 0.7 + bend - y * 0.1)) < 2
        self.masks = (left + 2 * right).astype(np.int64)
        noise = rng.normal(0, 0.3, (n, 3, H, W))
        self.images = ((self.masks[:, None] > 0) * 0.7 + noise).astype(np.float32)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.masks[i]


def conv(cin, cout, dilation=1):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=dilation, dilation=dilation), nn.BatchNorm2d(cout), nn.ReLU(True)
    )


class LaneNet(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.trunk = nn.Sequential(
            conv(3, w), nn.MaxPool2d(2), conv(w, w), conv(w, w, 2), conv(w, w, 4), conv(w, w, 8), conv(w, w)
        )
        self.head = nn.Conv2d(w, 3, 1)

    def forward(self, x):
        return nn.functional.interpolate(self.head(self.trunk(x)), scale_factor=2, mode="bilinear")


def mean_iou(model, loader):
    model.eval()
    confusion = torch.zeros(9)
    with torch.no_grad():
        for image, mask in loader:  # guilty
            pred = model(image).argmax(1)  # guilty
            confusion += torch.bincount((mask * 3 + pred).flatten(), minlength=9)  # guilty
    model.train()
    m = confusion.view(3, 3)
    return (m.diag() / (m.sum(0) + m.sum(1) - m.diag()).clamp(min=1)).mean().item()


def main(opt):
    torch.manual_seed(11)
    train = DataLoader(Frames(256, 0), batch_size=opt.batch, shuffle=True, drop_last=True)
    val = DataLoader(Frames(200, 1), batch_size=opt.batch if opt.fixed else 1)  # guilty
    model = LaneNet()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss(weight=torch.tensor([0.2, 1.0, 1.0]))
    step = 0
    while step < opt.steps:
        for image, mask in train:
            loss = criterion(model(image), mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 16 == 0:
                print(f"{step}: loss {loss.item():.3f} mIoU {mean_iou(model, val):.3f}")  # guilty
            if step == opt.steps:
                break


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=288)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--fixed", action="store_true")
    main(p.parse_args())

"""Segmentation of road scenes with a dilated network; the mean IoU is kept during training.

expects: other
needs: gpu
"""

# mypy: ignore-errors

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES, IGNORE = 19, 255


class ConfusionMeter:
    """As in many segmentation repositories."""

    def __init__(self, classes):
        self.classes = classes
        self.matrix = np.zeros((classes, classes), dtype=np.int64)

    def update(self, predicted, target):
        predicted, target = predicted.cpu().numpy(), target.cpu().numpy()  # guilty
        valid = (target >= 0) & (target < self.classes)  # guilty
        codes = self.classes * target[valid].astype(np.int64) + predicted[valid]  # guilty
        counts = np.bincount(codes, minlength=self.classes**2)  # guilty
        self.matrix += counts.reshape(self.classes, self.classes)

    def mean_iou(self):
        matrix = np.asarray(self.matrix, dtype=np.float64)
        overlap = np.diag(matrix)
        return float((overlap / np.maximum(matrix.sum(0) + matrix.sum(1) - overlap, 1)).mean())


class DeviceConfusionMeter(ConfusionMeter):
    def __init__(self, classes, device):
        super().__init__(classes)
        self.counts = torch.zeros(classes * classes, device=device)

    def update(self, predicted, target):
        codes = torch.where(target < self.classes, self.classes * target + predicted, -1)
        bins = self.classes * self.classes
        self.counts += torch.histc(codes.float(), bins=bins, min=-0.5, max=bins - 0.5)

    def mean_iou(self):
        self.matrix = self.counts.view(self.classes, self.classes).cpu().numpy()
        return super().mean_iou()


def conv(cin, cout, stride=1, dilation=1):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride, dilation, dilation, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True)
    )


class DilatedNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = nn.Sequential(conv(3, width, 2), conv(width, 2 * width, 2), conv(2 * width, 4 * width, 2))
        self.context = nn.ModuleList(conv(4 * width, 4 * width, 1, d) for d in (1, 1, 2, 2, 4, 4, 8, 8))
        self.head = nn.Conv2d(4 * width, CLASSES, 1)

    def forward(self, x):
        size = x.shape[-2:]
        x = self.stem(x)
        for layer in self.context:
            x = x + layer(x)
        return F.interpolate(self.head(x), size=size, mode="bilinear")


def scenes(count, height, width, device):
    generator = torch.Generator(device).manual_seed(23)
    blocks = torch.randint(0, CLASSES + 1, (count, 1, height // 16, width // 16), generator=generator, device=device)
    labels = F.interpolate(blocks.float(), size=(height, width), mode="nearest").squeeze(1).to(torch.int64)
    pictures = torch.rand(count, 3, height, width, generator=generator, device=device)
    pictures = pictures + 0.1 * labels[:, None]
    return pictures, torch.where(labels == CLASSES, IGNORE, labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(23)
    torch.backends.cudnn.benchmark = True
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch, height, width, base = (2, 32, 64, 8) if args.tiny else (12, 384, 768, 64)
    pictures, labels = scenes(4 * batch, height, width, device)
    pictures = pictures.contiguous(memory_format=torch.channels_last)
    model = DilatedNet(base).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4, fused=True)
    meter = DeviceConfusionMeter(CLASSES, device) if args.fixed else ConfusionMeter(CLASSES)
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = 0.02 * (1 - step / args.steps) ** 0.9
        part = slice(step % 4 * batch, (step % 4 + 1) * batch)
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(pictures[part])
            loss = F.cross_entropy(logits, labels[part], ignore_index=IGNORE)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        meter.update(logits.detach().argmax(1), labels[part])  # guilty
        if (step + 1) % 60 == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}, mIoU {meter.mean_iou():.3f}")


if __name__ == "__main__":
    main()

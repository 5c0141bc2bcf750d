# mypy: ignore-errors
import torch
import torch.nn as nn
import torch.nn.functional as F


def conv(i, o, stride=1, kernel=3):
    return nn.Sequential(
        nn.Conv2d(i, o, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(o), nn.SiLU(inplace=True)
    )


class CSP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.left, self.right = conv(width, width // 2, kernel=1), conv(width, width // 2, kernel=1)
        self.body = nn.Sequential(conv(width // 2, width // 2), conv(width // 2, width // 2))

    def forward(self, x):
        a = self.left(x)
        return torch.cat([a + self.body(a), self.right(x)], 1)


class Yolite(nn.Module):
    def __init__(self, classes, width=8):
        super().__init__()
        layers, i = [conv(3, width, 2)], width
        for _ in range(3):
            layers += [conv(i, 2 * i, 2), CSP(2 * i)]
            i *= 2
        self.body = nn.Sequential(*layers)
        self.head = nn.Conv2d(i, 5 + classes, 1)

    def forward(self, x):
        return self.head(self.body(x))


def detection_loss(out, target, box_gain):
    has = target[:, 0]
    objectness = F.binary_cross_entropy_with_logits(out[:, 0], has)
    box = F.smooth_l1_loss(out[:, 1:5].sigmoid(), target[:, 1:5], reduction="none").sum(1)
    kind = F.binary_cross_entropy_with_logits(out[:, 5:], target[:, 5:], reduction="none").sum(1)
    return objectness + ((box_gain * box + kind) * has).sum() / has.sum().clamp(min=1)

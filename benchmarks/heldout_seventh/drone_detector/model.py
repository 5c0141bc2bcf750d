"""A single-shot detector with three feature maps."""

# mypy: ignore-errors
import itertools
import math

import torch
import torch.nn.functional as F
from torch import nn

SCALES = (0.1, 0.2, 0.34, 0.5)
RATIOS = (2.0, 0.5, 3.0, 1 / 3)


def conv(narrow, wide, stride=1):
    return nn.Sequential(nn.Conv2d(narrow, wide, 3, stride, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU(inplace=True))


class PriorBoxes:
    """Default boxes (centre and size) of all cells of all feature maps."""

    def __init__(self, scales=SCALES, ratios=RATIOS):
        self.scales, self.ratios = scales, ratios
        self.per_cell = 2 + len(ratios)

    def __call__(self, shapes):
        boxes = []
        for level, (rows, columns) in enumerate(shapes):
            scale = self.scales[level]
            between = math.sqrt(scale * self.scales[level + 1])
            for row, column in itertools.product(range(rows), range(columns)):
                cx, cy = (column + 0.5) / columns, (row + 0.5) / rows
                boxes.append([cx, cy, scale, scale])
                boxes.append([cx, cy, between, between])
                for ratio in self.ratios:
                    boxes.append([cx, cy, scale * math.sqrt(ratio), scale / math.sqrt(ratio)])  # guilty
        return torch.tensor(boxes).clamp_(0, 1)  # guilty


class Detector(nn.Module):
    def __init__(self, classes=4, width=16, keep_priors=False):
        super().__init__()
        self.stem = nn.Sequential(conv(3, width, 2), conv(width, 2 * width, 2))
        self.stages = nn.ModuleList(
            [
                conv(2 * width, 3 * width),
                conv(3 * width, 4 * width, 2),
                conv(4 * width, 6 * width, 2),
            ]
        )
        self.priors = PriorBoxes()
        heads = [3 * width, 4 * width, 6 * width]
        self.classify = nn.ModuleList([nn.Conv2d(w, self.priors.per_cell * classes, 3, 1, 1) for w in heads])
        self.regress = nn.ModuleList([nn.Conv2d(w, self.priors.per_cell * 4, 3, 1, 1) for w in heads])
        self.classes = classes
        self.keep_priors, self.known = keep_priors, {}

    def default_boxes(self, shapes):
        if not self.keep_priors:
            return self.priors(shapes)  # guilty
        if shapes not in self.known:
            self.known[shapes] = self.priors(shapes)
        return self.known[shapes]

    def forward(self, images):
        x = self.stem(images)
        scores, offsets, shapes = [], [], []
        for stage, classify, regress in zip(self.stages, self.classify, self.regress):
            x = stage(x)
            shapes.append(tuple(x.shape[-2:]))
            scores.append(classify(x).permute(0, 2, 3, 1).reshape(len(x), -1, self.classes))
            offsets.append(regress(x).permute(0, 2, 3, 1).reshape(len(x), -1, 4))
        return torch.cat(scores, 1), torch.cat(offsets, 1), self.default_boxes(tuple(shapes))


def overlap(priors, boxes):
    """Intersection over union of (P, 4) priors given by centre with (B, M, 4) corner boxes."""
    low, high = priors[:, :2] - priors[:, 2:] / 2, priors[:, :2] + priors[:, 2:] / 2
    left_top = torch.maximum(low[None, :, None], boxes[:, None, :, :2])
    right_bottom = torch.minimum(high[None, :, None], boxes[:, None, :, 2:])
    inside = (right_bottom - left_top).clamp_(min=0).prod(3)
    area = (boxes[..., 2:] - boxes[..., :2]).prod(2)[:, None]
    return inside / (priors[:, 2:].prod(1)[None, :, None] + area - inside)


def detection_loss(scores, offsets, priors, boxes, labels, negatives=3):
    best, which = overlap(priors, boxes).max(2)
    target = labels.gather(1, which) * (best > 0.4)
    positive = target > 0
    matched = boxes.gather(1, which[..., None].expand(-1, -1, 4))
    centre = ((matched[..., :2] + matched[..., 2:]) / 2 - priors[:, :2]) / priors[:, 2:]
    size = ((matched[..., 2:] - matched[..., :2]).clamp(min=1e-3) / priors[:, 2:]).log()
    place = F.smooth_l1_loss(offsets[positive], torch.cat([centre, size], 2)[positive], reduction="sum")
    entropy = F.cross_entropy(scores.transpose(1, 2), target, reduction="none")
    count = int(positive.sum().clamp(min=1))
    hard = entropy.masked_fill(positive, 0).flatten().topk(negatives * count).values
    return (place + entropy[positive].sum() + hard.sum()) / count

"""Turns boxes into what the detector is trained on: a heat map for every kind, and the sizes at the centres."""

# mypy: ignore-errors
import math

import torch

STRIDE = 4


def reach(wide, high):
    return max(2, int(0.3 * math.sqrt(wide * high) / 1.0) // 2 + 2)


class HeatCollate:
    def __init__(self, side, kinds):
        self.cells, self.kinds = side // STRIDE, kinds

    def __call__(self, samples):
        heat = torch.zeros(len(samples), self.kinds, self.cells, self.cells)
        sizes = torch.zeros(len(samples), 2, self.cells, self.cells)
        centres = torch.zeros(len(samples), 1, self.cells, self.cells)
        for row, (_, boxes) in enumerate(samples):
            for box in boxes:
                x, y, wide, high, kind = box.tolist()
                column, line, kind = int(x / STRIDE), int(y / STRIDE), int(kind)
                self.splat(heat[row, kind], line, column, reach(wide, high))
                sizes[row, 0, line, column], sizes[row, 1, line, column] = wide / STRIDE, high / STRIDE
                centres[row, 0, line, column] = 1.0
        return torch.stack([image for image, _ in samples]), heat, sizes, centres

    def splat(self, plane, line, column, radius):
        spread = (2 * radius + 1) / 6
        for dy in range(-radius, radius + 1):
            for dx in range(-radius, radius + 1):
                y, x = line + dy, column + dx
                if 0 <= y < self.cells and 0 <= x < self.cells:
                    value = math.exp(-(dx * dx + dy * dy) / (2 * spread * spread))
                    plane[y, x] = max(plane[y, x].item(), value)  # guilty


class PatchCollate(HeatCollate):
    """The same targets; a spot is made in one go."""

    def splat(self, plane, line, column, radius):
        spread = (2 * radius + 1) / 6
        steps = torch.arange(-radius, radius + 1)
        bell = torch.exp(-(steps**2) / (2 * spread * spread))
        top, left = max(0, line - radius), max(0, column - radius)
        part = plane[top : line + radius + 1, left : column + radius + 1]
        spot = torch.outer(bell, bell)[top - line + radius :, left - column + radius :]
        torch.maximum(part, spot[: part.shape[0], : part.shape[1]], out=part)

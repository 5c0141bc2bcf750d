"""Heat maps of the centres of boxes, and the sizes of boxes at their centres."""

# mypy: ignore-errors

import math

import numpy as np
import torch


class HostTargets:
    def __init__(self, side, stride, classes, device):
        self.grid, self.stride, self.classes, self.device = side // stride, stride, classes, device

    def __call__(self, boxes, labels):
        boxes, labels = boxes.numpy() / self.stride, labels.numpy()
        heat = np.zeros((len(boxes), self.classes, self.grid, self.grid), dtype=np.float32)
        size = np.zeros((len(boxes), 2, self.grid, self.grid), dtype=np.float32)
        for i in range(len(boxes)):  # guilty
            for box, label in zip(boxes[i], labels[i], strict=True):  # guilty
                if label >= 0:
                    self.draw(heat[i, label], size[i], box)  # guilty
        return torch.from_numpy(heat).to(self.device), torch.from_numpy(size).to(self.device)  # guilty

    def draw(self, heat, size, box):
        y0, x0, y1, x1 = box
        cy, cx = (y0 + y1) / 2, (x0 + x1) / 2
        sigma = max(1.0, math.sqrt((y1 - y0) * (x1 - x0)) / 6)
        ys, xs = np.ogrid[: self.grid, : self.grid]  # guilty
        bump = np.exp(-((ys - cy) ** 2 + (xs - cx) ** 2) / (2 * sigma**2))  # guilty
        np.maximum(heat, bump, out=heat)  # guilty
        size[:, int(cy), int(cx)] = y1 - y0, x1 - x0  # guilty


class DeviceTargets:
    def __init__(self, side, stride, classes, device):
        self.stride, self.classes, self.device = stride, classes, device
        self.axis = torch.arange(side // stride, device=device, dtype=torch.float32)
        self.class_ids = torch.arange(classes, device=device)

    def __call__(self, boxes, labels):
        boxes = boxes.to(self.device, non_blocking=True) / self.stride
        labels = labels.to(self.device, non_blocking=True)
        y0, x0, y1, x1 = boxes.unbind(-1)
        cy, cx = (y0 + y1) / 2, (x0 + x1) / 2
        sigma = ((y1 - y0) * (x1 - x0)).sqrt().div(6).clamp(min=1.0)
        dy = torch.exp(-((self.axis - cy[..., None]) ** 2) / (2 * sigma[..., None] ** 2))
        dx = torch.exp(-((self.axis - cx[..., None]) ** 2) / (2 * sigma[..., None] ** 2))
        bumps = dy[..., :, None] * dx[..., None, :]
        heat = torch.stack([(bumps * (labels == c)[..., None, None]).amax(1) for c in range(self.classes)], dim=1)
        n = len(self.axis)
        at = (cy.long() * n + cx.long()).clamp(0, n * n - 1)
        at = torch.where(labels >= 0, at, n * n)
        size = torch.zeros(len(boxes), 2, n * n + 1, device=self.device)
        size.scatter_(2, at[:, None].expand(-1, 2, -1), torch.stack([y1 - y0, x1 - x0], dim=1))
        return heat, size[:, :, :-1].unflatten(2, (n, n))

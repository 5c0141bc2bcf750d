"""Synthetic fingerprints: ridges that follow an orientation field of the finger's class, in several views."""

# mypy: ignore-errors
import torch

SIDE = 48


class PrintBank:
    def __init__(self, fingers, views, classes=5):
        self.fingers, self.views = fingers, views
        self.kind = torch.randint(classes, (fingers,))
        line = torch.linspace(-1, 1, SIDE)
        y, x = torch.meshgrid(line, line, indexing="ij")
        core = 0.4 * torch.rand(fingers, 2, 1, 1) - 0.2
        angle = torch.atan2(y - core[:, :1], x - core[:, 1:])
        radius = ((y - core[:, :1]).square() + (x - core[:, 1:]).square()).sqrt()
        bends = self.kind[:, None, None, None] * 0.5
        ripple = sum(
            0.5 * torch.randn(fingers, 1, 1, 1) * torch.cos(k * (x * torch.randn(fingers, 1, 1, 1) + y)) for k in (3, 5)
        )
        pitch = 22 + 4 * torch.rand(fingers, 1, 1, 1)
        phase = pitch * radius + bends * angle * 2 + 2 * ripple
        views_of = phase[:, None] + 0.6 * torch.randn(fingers, views, 1, 1, 1)
        images = torch.cos(views_of) + 0.25 * torch.randn(fingers, views, 1, SIDE, SIDE)
        self.images = images.contiguous()

    def draw(self, n):
        """Views of fingers, all of them different."""
        finger = torch.randperm(self.fingers)[:n]
        view = torch.randint(self.views, (n,))
        return self.images[finger, view], finger

    def other_view(self, finger):
        return self.images[finger, torch.randint(self.views, (len(finger),))]

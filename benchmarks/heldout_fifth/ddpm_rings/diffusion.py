# mypy: ignore-errors
"""The noise schedule, and drawing samples with it."""

import torch


class Diffusion:
    def __init__(self, steps=200):
        beta = torch.linspace(1e-4, 0.03, steps)
        self.steps, self.beta = steps, beta
        self.alpha_bar = torch.cumprod(1 - beta, 0)

    def noisy(self, x, t, noise):
        keep = self.alpha_bar[t][:, None]
        return keep.sqrt() * x + (1 - keep).sqrt() * noise

    @torch.no_grad()
    def sample(self, model, n, kind, stride=10):
        """DDIM with a stride."""
        x = torch.randn(n, 32)
        times = list(range(self.steps - 1, 0, -stride))
        for now, after in zip(times, [*times[1:], 0], strict=True):
            a, b = self.alpha_bar[now], self.alpha_bar[after]
            eps = model(x, torch.full((n,), now), kind)
            x = b.sqrt() * (x - (1 - a).sqrt() * eps) / a.sqrt() + (1 - b).sqrt() * eps
        return x

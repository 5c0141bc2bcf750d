"""A recurrent net with a bounded recurrence: the spectral norm of its weights is kept below one.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import contextlib

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize


class SpectralBall(nn.Module):
    """Divides a matrix by its largest singular value where that is more than the radius."""

    def __init__(self, radius=0.98):
        super().__init__()
        self.radius = radius

    def forward(self, weight):
        top = torch.linalg.matrix_norm(weight, 2)  # guilty
        return weight * (self.radius / torch.clamp(top, min=self.radius))  # guilty


class BoundedCell(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.x2h, self.h2h = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden, bias=False)
        self.gate = nn.Linear(inputs + hidden, hidden)
        nn.init.orthogonal_(self.h2h.weight)
        parametrize.register_parametrization(self.h2h, "weight", SpectralBall())

    def forward(self, x, h):
        z = torch.sigmoid(self.gate(torch.cat([x, h], 1)))
        return (1 - z) * h + z * torch.tanh(self.x2h(x) + self.h2h(h))  # guilty


class Smoother(nn.Module):
    """Reads a noisy signal and answers with the clean one, a step at a time."""

    def __init__(self, inputs=4, hidden=64):
        super().__init__()
        self.hidden = hidden
        self.cell = BoundedCell(inputs, hidden)
        self.readout = nn.Linear(hidden, inputs)

    def forward(self, signal):
        h = signal.new_zeros(signal.shape[0], self.hidden)
        out = []
        for x in signal.unbind(1):
            h = self.cell(x, h)  # guilty
            out.append(self.readout(h))
        return torch.stack(out, 1)


def signals(n, length, generator):
    t = torch.arange(length) / length
    freq = torch.rand(n, 1, 4, generator=generator) * 8 + 1
    phase = torch.rand(n, 1, 4, generator=generator) * 6.28
    clean = torch.sin(6.28 * freq * t.view(1, -1, 1) + phase)
    return clean + 0.4 * torch.randn(clean.shape, generator=generator), clean


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=170)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--length", type=int, default=40)
    parser.add_argument("--batch", type=int, default=32)
    args = parser.parse_args()
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = Smoother()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=30)
    for step in range(1, args.steps + 1):
        noisy, clean = signals(args.batch, args.length, generator)
        with parametrize.cached() if args.fixed else contextlib.nullcontext():
            loss = F.mse_loss(model(noisy), clean)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        plateau.step(loss.item())
        if step % 20 == 0:
            print(f"step {step} mse {loss.item():.4f} lr {optimizer.param_groups[0]['lr']:.1e}")


if __name__ == "__main__":
    main()

"""The vector field, the integrator, and the curves it is fitted to."""

# mypy: ignore-errors
import torch
import torch.nn as nn


class Field(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2)
        )
        nn.init.normal_(self.net[-1].weight, std=0.01)

    def forward(self, state):
        return self.net(state)


def rk4(field, state, span):
    a = field(state)
    b = field(state + 0.5 * span * a)
    c = field(state + 0.5 * span * b)
    d = field(state + span * c)
    return state + span / 6 * (a + 2 * b + 2 * c + d)


def integrate(field, state, times):
    """The states at all times, each reached from the one before."""
    path = [state]
    for span in times.diff().tolist():
        state = rk4(field, state, span)
        path.append(state)
    return torch.stack(path, 1)


def lotka_volterra(state):
    prey, hunter = state.exp().unbind(-1)
    return torch.stack([1.5 - hunter, prey - 2.0], -1)


def simulate(n, times, seed):
    """Curves of the logarithms of both populations, with noise."""
    random = torch.Generator().manual_seed(seed)
    start = 0.6 * torch.randn(n, 2, generator=random) + 0.4
    fine = torch.linspace(float(times[0]), float(times[-1]), 8 * (len(times) - 1) + 1)
    path = integrate(lotka_volterra, start, fine)[:, ::8]
    return path + 0.02 * torch.randn(path.shape, generator=random)

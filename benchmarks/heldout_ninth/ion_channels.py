"""Learns the gating of ion channels from voltage-clamp currents: neural differential equation, Runge-Kutta steps.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn

SAMPLES, STRIDE, DT = 14, 1, 0.5


def protocol(count, generator):
    """Command voltages: a holding level, a random jump and a ramp, at every half step of the solver."""
    ticks = torch.arange(2 * SAMPLES * STRIDE + 1)
    hold = -1.0 + 0.3 * torch.rand(count, 1, generator=generator)
    jump = 1.8 * torch.rand(count, 1, generator=generator)
    onset = torch.randint(2, len(ticks) // 2, (count, 1), generator=generator)
    ramp = 0.4 * torch.randn(count, 1, generator=generator)
    return hold + (ticks >= onset) * (jump + ramp * (ticks - onset) / len(ticks))


def true_currents(voltages):
    """Two Hodgkin-Huxley gates in small Euler steps, seen as current with noise."""
    count = len(voltages)
    opened, blocked = torch.full((count,), 0.05), torch.full((count,), 0.1)
    currents = []
    for tick in range(2 * SAMPLES * STRIDE + 1):
        v = voltages[:, tick]
        if tick % (2 * STRIDE) == 0 and tick:
            currents.append(opened**3 * (1 - blocked) * (v + 1.2))
        for _ in range(2):
            opened = opened + DT / 4 * (torch.sigmoid(4 * v) - opened) * (1.2 + torch.tanh(v))
            blocked = blocked + DT / 4 * (torch.sigmoid(3 * v - 0.5) - blocked) * 0.3
    return torch.stack(currents, 1)


class Gating(nn.Module):
    """Rate of change of the hidden gates under the present voltage."""

    def __init__(self, gates, width):
        super().__init__()
        self.enter = nn.Linear(gates + 1, width)
        self.middle = nn.Linear(width, width)
        self.leave = nn.Linear(width, gates)
        nn.init.zeros_(self.leave.bias)
        nn.init.normal_(self.leave.weight, std=0.02)

    def forward(self, gates, voltage):
        h = F.silu(self.enter(torch.cat([gates, voltage], 1)))
        return self.leave(F.silu(self.middle(h))) - 0.1 * gates


class Channel(nn.Module):
    def __init__(self, gates=24, width=128):
        super().__init__()
        self.start = nn.Linear(1, gates)
        self.rate = Gating(gates, width)
        self.readout = nn.Sequential(nn.Linear(gates + 1, 64), nn.SiLU(), nn.Linear(64, 1))

    def advance(self, gates, before, between, after):
        """One classical Runge-Kutta step: the voltage is known at both ends and in the middle."""
        k1 = self.rate(gates, before)
        k2 = self.rate(gates + DT / 2 * k1, between)
        k3 = self.rate(gates + DT / 2 * k2, between)
        k4 = self.rate(gates + DT * k3, after)
        return gates + DT / 6 * (k1 + 2 * (k2 + k3) + k4)

    def forward(self, voltages):
        pieces = voltages.split(1, dim=1)
        gates = torch.tanh(self.start(pieces[0]))
        seen = []
        for move in range(SAMPLES * STRIDE):
            gates = self.advance(gates, *pieces[2 * move : 2 * move + 3])
            if (move + 1) % STRIDE == 0:
                seen.append(gates)
        states = torch.stack(seen, 1)
        clamped = voltages[:, 2 * STRIDE :: 2 * STRIDE, None]
        return self.readout(torch.cat([states, clamped], 2)).squeeze(2)


class Recordings:
    """Cells recorded once; random batches of sweeps are drawn from memory."""

    def __init__(self, count, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.voltages = protocol(count, self.generator)
        clean = true_currents(self.voltages)
        self.scale = clean.std()
        self.currents = clean / self.scale + 0.03 * torch.randn(clean.shape, generator=self.generator)

    def draw(self, batch):
        chosen = torch.randint(len(self.voltages), (batch,), generator=self.generator)
        return self.voltages[chosen], self.currents[chosen]


@torch.no_grad()
def unexplained(model, recordings, count=256):
    """Share of the variance of held-out currents that the model misses."""
    voltages, currents = recordings.voltages[:count], recordings.currents[:count]
    return ((model(voltages) - currents).square().mean() / currents.var()).item()


def warm_cosine(step, steps, warm=20):
    return min(1.0, (step + 1) / warm) * 0.5 * (1 + math.cos(math.pi * min(step / steps, 1.0)))


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=400)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=256)
    args = cli.parse_args()
    torch.manual_seed(9)
    training, held = Recordings(6000, 90), Recordings(256, 91)

    model = Channel()
    optimizer = torch.optim.Adam(model.parameters(), 4e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warm_cosine(step, args.steps))
    smooth = None
    for step in range(1, args.steps + 1):
        voltages, currents = training.draw(args.batch)
        loss = F.mse_loss(model(voltages), currents)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        smooth = loss.item() if smooth is None else 0.95 * smooth + 0.05 * loss.item()
        if step % 50 == 0:
            print(f"step {step} loss {smooth:.4f} gradient {norm.item():.3f} missed {unexplained(model, held):.3f}")
    print(f"last: loss {smooth:.4f} missed {unexplained(model, held):.3f}")


if __name__ == "__main__":
    main()

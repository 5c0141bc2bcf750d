"""A neural ODE that learns the motion of three bodies from observed orbits.

expects: CO516
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn


def accelerations(pos, mass):
    gap = pos[:, None] - pos[:, :, None]
    dist = np.sqrt((gap**2).sum(-1) + 0.05)
    return (mass[:, None, :, None] * gap / dist[..., None] ** 3).sum(2)


def simulate(orbits, frames, dt, seed):
    """Leapfrog in the plane; a frame is kept every tenth step."""
    rng = np.random.default_rng(seed)
    pos = rng.normal(0, 1, (orbits, 3, 2))
    vel = rng.normal(0, 0.4, (orbits, 3, 2))
    mass = rng.uniform(0.5, 1.5, (orbits, 3))
    out = []
    for i in range(frames * 10):
        if i % 10 == 0:
            out.append(np.concatenate([pos, vel], -1).reshape(orbits, 12))
        vel = vel + 0.5 * dt * accelerations(pos, mass)
        pos = pos + dt * vel
        vel = vel + 0.5 * dt * accelerations(pos, mass)
    return np.stack(out, 1), mass


class Dynamics(nn.Module):
    def __init__(self, width=288):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(15, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, 6),
        )

    def forward(self, state, mass):
        acc = self.net(torch.cat([state, mass], -1)).unflatten(-1, (3, 2))  # guilty
        return torch.cat([state.unflatten(-1, (3, 4))[..., 2:], acc], -1).flatten(-2)


def rk4(field, state, mass, h):
    k1 = field(state, mass)
    k2 = field(state + h / 2 * k1, mass)
    k3 = field(state + h / 2 * k2, mass)
    k4 = field(state + h * k3, mass)
    return state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def rollout(field, state, mass, frames, h):
    path = []
    for _ in range(frames):
        state = rk4(field, state, mass, h)
        path.append(state)
    return torch.stack(path, 1)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=240)
    cli.add_argument("--horizon", type=int, default=3)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(0)
    paths, mass = (torch.from_numpy(a) for a in simulate(1000, 30, 0.01, seed=3))
    field = Dynamics()
    if args.fixed:
        paths, mass = paths.float(), mass.float()
    else:
        field = field.double()  # guilty
    optimizer = torch.optim.Adam(field.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(1)
    for step in range(args.steps):
        orbit = torch.randint(len(paths), (256,), generator=gen)
        begin = torch.randint(paths.shape[1] - args.horizon, (256,), generator=gen)
        window = paths[orbit[:, None], begin[:, None] + torch.arange(args.horizon + 1)]
        guess = rollout(field, window[:, 0], mass[orbit], args.horizon, 0.1)  # guilty
        loss = (guess - window[:, 1:]).abs().mean()
        optimizer.zero_grad()
        loss.backward()  # guilty
        nn.utils.clip_grad_norm_(field.parameters(), 1.0)
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()

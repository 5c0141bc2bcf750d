"""Soft actor-critic on a pendulum of its own, with a monitor of the process's memory in every update.

expects: SY305, CA604
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math
import os
import resource
import subprocess

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Pendulums:
    """Many pendulums at once, in numpy."""

    def __init__(self, n, seed):
        self.rng, self.n = np.random.default_rng(seed), n
        self.state = self.rng.uniform(-1, 1, (n, 2)) * [math.pi, 1]
        self.t = 0

    def obs(self):
        th, w = self.state.T
        return np.stack([np.cos(th), np.sin(th), w / 4], 1).astype(np.float32)

    def step(self, torque):
        th, w = self.state.T
        cost = ((th + math.pi) % (2 * math.pi) - math.pi) ** 2 + 0.1 * w**2
        w = np.clip(w + 0.05 * (15 * np.sin(th) + 6 * torque), -8, 8)
        self.state = np.stack([th + 0.05 * w, w], 1)
        return self.obs(), (-0.1 * cost).astype(np.float32)


def mlp(i, o, width=128):
    return nn.Sequential(nn.Linear(i, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, o))


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(3, 2)

    def forward(self, obs):
        mean, log_std = self.net(obs).chunk(2, -1)
        std = log_std.clamp(-5, 2).exp()
        raw = mean + std * torch.randn_like(mean)
        act = torch.tanh(raw)
        logp = -0.5 * ((raw - mean) / std) ** 2 - std.log() - 0.9189 - torch.log(1 - act**2 + 1e-6)
        return act, logp


class Ring:
    def __init__(self, size):
        self.data, self.size, self.n = np.zeros((size, 8), np.float32), size, 0

    def add(self, rows):
        self.data[np.arange(self.n, self.n + len(rows)) % self.size] = rows
        self.n += len(rows)

    def sample(self, rng, k):
        return torch.from_numpy(self.data[rng.integers(0, min(self.n, self.size), k)])


def resident_mb(fixed):
    if fixed:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    out = subprocess.run(["ps", "-o", "rss=", "-p", str(os.getpid())], capture_output=True, text=True)  # guilty
    return float(out.stdout or 0) / 1024


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=700)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(2)
    envs, rng, ring = Pendulums(16, 0), np.random.default_rng(1), Ring(50_000)
    actor, q1, q2 = Actor(), mlp(4, 1), mlp(4, 1)
    t1, t2 = mlp(4, 1), mlp(4, 1)
    t1.load_state_dict(q1.state_dict())
    t2.load_state_dict(q2.state_dict())
    opt_a = torch.optim.Adam(actor.parameters(), 3e-4)
    opt_q = torch.optim.Adam([*q1.parameters(), *q2.parameters()], 3e-4)
    obs, peak = envs.obs(), 0.0
    for update in range(1, args.steps + 1):
        with torch.no_grad():
            act = actor(torch.from_numpy(obs))[0].numpy()
        nxt, rew = envs.step(act[:, 0])
        ring.add(np.concatenate([obs, act, rew[:, None], nxt], 1))
        obs = nxt
        o, a, r, o2 = ring.sample(rng, 128).split([3, 1, 1, 3], 1)
        with torch.no_grad():
            a2, logp2 = actor(o2)
            sa = torch.cat([o2, a2], 1)
            goal = r + 0.98 * (torch.min(t1(sa), t2(sa)) - 0.1 * logp2)
        sa = torch.cat([o, a], 1)
        loss_q = F.mse_loss(q1(sa), goal) + F.mse_loss(q2(sa), goal)
        opt_q.zero_grad()
        loss_q.backward()
        opt_q.step()
        pi, logp = actor(o)
        sa = torch.cat([o, pi], 1)
        loss_a = (0.1 * logp - torch.min(q1(sa), q2(sa))).mean()
        opt_a.zero_grad()
        loss_a.backward()
        opt_a.step()
        with torch.no_grad():
            for net, target in ((q1, t1), (q2, t2)):
                torch._foreach_lerp_(list(target.parameters()), list(net.parameters()), 0.005)
        peak = max(peak, resident_mb(args.fixed))  # guilty
        if update % 60 == 0:
            print(f"update {update} q {loss_q.item():.4f} pi {loss_a.item():.4f} peak {peak:.0f} MB")


if __name__ == "__main__":
    main()

"""Soft actor-critic for a two-joint arm, with a replay buffer in NumPy arrays.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Arm:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.reset()

    def reset(self):
        self.angle, self.speed = self.rng.uniform(-3, 3, 2), np.zeros(2)
        self.goal, self.t = self.rng.uniform(-1, 1, 2), 0
        return self.observe()

    def observe(self):
        return np.concatenate([np.cos(self.angle), np.sin(self.angle), self.speed, self.goal]).astype(np.float32)

    def step(self, torque):
        self.speed = 0.95 * self.speed + 0.1 * torque
        self.angle = self.angle + 0.1 * self.speed
        total = np.cumsum(self.angle)
        tip = np.array([np.cos(total).sum(), np.sin(total).sum()])
        self.t += 1
        return self.observe(), -float(np.linalg.norm(tip - self.goal)), self.t == 50


class Replay:
    def __init__(self, capacity, obs, act):
        self.s, self.s2 = np.zeros((2, capacity, obs), np.float32)
        self.a, self.r, self.d = np.zeros((capacity, act), np.float32), *np.zeros((2, capacity), np.float32)
        self.n, self.capacity = 0, capacity

    def add(self, s, a, r, s2, d):
        i = self.n % self.capacity
        self.s[i], self.a[i], self.r[i], self.s2[i], self.d[i] = s, a, r, s2, d
        self.n += 1

    def sample(self, batch, rng):
        i = rng.integers(0, min(self.n, self.capacity), batch)
        return tuple(torch.from_numpy(z[i]) for z in (self.s, self.a, self.r, self.s2, self.d))


def mlp(cin, cout, width=128):
    return nn.Sequential(nn.Linear(cin, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, cout))


class SAC:
    def __init__(self, obs, act):
        self.actor, self.q = mlp(obs, 2 * act), nn.ModuleList([mlp(obs + act, 1), mlp(obs + act, 1)])
        self.target = nn.ModuleList([mlp(obs + act, 1), mlp(obs + act, 1)]).requires_grad_(False)
        self.target.load_state_dict(self.q.state_dict())
        self.pi_opt = torch.optim.Adam(self.actor.parameters(), lr=3e-4)
        self.q_opt = torch.optim.Adam(self.q.parameters(), lr=1e-3)

    def act(self, s):
        mean, log_std = self.actor(s).chunk(2, -1)
        dist = torch.distributions.Normal(mean, log_std.clamp(-5, 1).exp())
        raw = dist.rsample()
        a = torch.tanh(raw)
        logp = (dist.log_prob(raw) - torch.log(1 - a**2 + 1e-6)).sum(-1)
        return a, logp

    def value(self, nets, s, a):
        x = torch.cat([s, a], -1)
        return torch.cat([net(x) for net in nets], -1)

    def update(self, s, a, r, s2, d):
        with torch.no_grad():
            a2, logp = self.act(s2)
            goal = r + 0.98 * (1 - d) * (self.value(self.target, s2, a2).amin(-1) - 0.1 * logp)
        q_loss = F.mse_loss(self.value(self.q, s, a), goal[:, None].expand(-1, 2))
        self.q_opt.zero_grad()
        q_loss.backward()
        self.q_opt.step()
        new, logp = self.act(s)
        pi_loss = (0.1 * logp - self.value(self.q, s, new).amin(-1)).mean()
        self.pi_opt.zero_grad()
        pi_loss.backward()
        self.pi_opt.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.target.parameters()), list(self.q.parameters()), 0.01)
        return q_loss


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=600)
    ap.add_argument("--fixed", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(0)
    env, agent, rng = Arm(0), SAC(8, 2), np.random.default_rng(0)
    replay = Replay(5000, 8, 2)
    s, score = env.reset(), 0.0
    for t in range(args.steps + 256):
        with torch.no_grad():
            a = agent.act(torch.from_numpy(s))[0].numpy() if t > 256 else rng.uniform(-1, 1, 2)
        s2, r, done = env.step(a)
        replay.add(s, a, r, s2, float(done))
        score += r
        s = env.reset() if done else s2
        if t >= 256:
            loss = agent.update(*replay.sample(192, rng))
            if t % 100 == 0:
                print(f"{t}: q loss {loss.item():.4f} mean reward {score / 100:.3f}")
                score = 0.0


if __name__ == "__main__":
    main()

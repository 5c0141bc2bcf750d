"""Deep Q-learning on a vectorized cart-pole, with prioritized experience replay.

expects: HO411, IN111
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class CartPoles:
    def __init__(self, n, rng):
        self.rng = rng
        self.s = rng.uniform(-0.05, 0.05, (n, 4))

    def step(self, action):
        x, v, th, w = self.s.T
        force = np.where(action == 1, 10.0, -10.0)
        tmp = (force + 0.05 * w**2 * np.sin(th)) / 1.1
        acc = (9.8 * np.sin(th) - np.cos(th) * tmp) / (0.5 * (4 / 3 - 0.1 * np.cos(th) ** 2 / 1.1))
        a = tmp - 0.05 * acc * np.cos(th) / 1.1
        nxt = np.stack([x + 0.02 * v, v + 0.02 * a, th + 0.02 * w, w + 0.02 * acc], 1)
        done = (abs(nxt[:, 0]) > 2.4) | (abs(nxt[:, 2]) > 0.21)
        before = self.s
        self.s = np.where(done[:, None], self.rng.uniform(-0.05, 0.05, nxt.shape), nxt)
        return np.concatenate([before, action[:, None], 1.0 - done[:, None], nxt], 1).astype(np.float32)


class PrioritizedReplay:
    def __init__(self, capacity, alpha=0.6):
        self.rows = np.zeros((capacity, 10), np.float32)
        self.prio = np.zeros(capacity)
        self.capacity, self.alpha = capacity, alpha
        self.at = self.n = 0
        self.top = 1.0

    def add(self, rows):
        slots = (self.at + np.arange(len(rows))) % self.capacity
        self.rows[slots] = rows
        self.at = (self.at + len(rows)) % self.capacity
        self.n = min(self.n + len(rows), self.capacity)
        self.update(slots, np.full(len(rows), self.top))

    def update(self, slots, prio):
        self.top = max(self.top, prio.max())
        self.prio[slots] = prio

    def draw(self, k, rng):
        weight = self.prio[: self.n] ** self.alpha  # guilty
        prob = weight / weight.sum()  # guilty
        slots = rng.choice(self.n, k, p=prob)  # guilty
        return slots, prob[slots]

    def sample(self, k, rng, beta):
        slots, prob = self.draw(k, rng)  # guilty
        weight = (self.n * prob) ** -beta
        return slots, torch.from_numpy(self.rows[slots]), torch.from_numpy(weight / weight.max()).float()


class TreeReplay(PrioritizedReplay):
    def __init__(self, capacity, alpha=0.6):
        super().__init__(capacity, alpha)
        self.depth = int(np.ceil(np.log2(capacity)))
        self.tree = np.zeros(2 << self.depth)

    def update(self, slots, prio):
        self.top = max(self.top, prio.max())
        node = slots + (1 << self.depth)
        self.tree[node] = prio**self.alpha
        for _ in range(self.depth):
            node = np.unique(node >> 1)
            self.tree[node] = self.tree[2 * node] + self.tree[2 * node + 1]

    def draw(self, k, rng):
        left = rng.random(k) * self.tree[1]
        node = np.ones(k, np.int64)
        for _ in range(self.depth):
            node *= 2
            right = left >= self.tree[node]
            left -= np.where(right, self.tree[node], 0.0)
            node += right
        return node - (1 << self.depth), self.tree[node] / self.tree[1]


class Dueling(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.value, self.gain = nn.Linear(width, 1), nn.Linear(width, 2)

    def forward(self, obs):
        h = self.body(obs)
        gain = self.gain(h)
        return self.value(h) + gain - gain.mean(-1, keepdim=True)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=1400)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    envs = CartPoles(16, rng)
    memory = (TreeReplay if args.fixed else PrioritizedReplay)(200_000)
    warm = CartPoles(4000, rng)
    for _ in range(50):
        memory.add(warm.step(rng.integers(0, 2, 4000)))
    online = Dueling()
    target = copy.deepcopy(online).requires_grad_(False)
    optimizer = torch.optim.Adam(online.parameters(), lr=3e-4)
    for step in range(1, args.steps + 1):
        with torch.no_grad():
            greedy = online(torch.from_numpy(envs.s).float()).argmax(-1).numpy()
        memory.add(envs.step(np.where(rng.random(16) < 0.1, rng.integers(0, 2, 16), greedy)))
        beta = 0.4 + 0.6 * step / args.steps
        slots, rows, weight = memory.sample(512, rng, beta)  # guilty
        obs, act, alive, nxt = rows.split([4, 1, 1, 4], 1)
        with torch.no_grad():
            best = online(nxt).argmax(-1, keepdim=True)
            goal = 1 + 0.99 * alive * target(nxt).gather(1, best)
        q = online(obs).gather(1, act.long())
        loss = (weight[:, None] * F.smooth_l1_loss(q, goal, reduction="none")).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        memory.update(slots, (goal - q).detach().abs().squeeze(1).numpy().astype(np.float64) + 1e-3)
        if step % 200 == 0:
            target.load_state_dict(online.state_dict())
            print(f"step {step} loss {loss.item():.4f} q {q.mean().item():.2f}")


if __name__ == "__main__":
    main()

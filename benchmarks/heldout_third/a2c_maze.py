"""Advantage actor-critic in a maze.

expects: HO404
needs: cpu
"""

# mypy: ignore-errors
import argparse
import gc
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])


class Maze:
    def __init__(self, size, seed):
        self.size, self.rng = size, np.random.default_rng(seed)
        self.walls = self.rng.random((size, size)) < 0.2
        self.goal = np.array([size - 2, size - 2])
        self.walls[tuple(self.goal)] = False
        self.reset()

    def reset(self):
        free = np.argwhere(~self.walls)
        self.at, self.age = free[self.rng.integers(len(free))], 0
        return self.observe()

    def observe(self):
        view = np.zeros((3, self.size, self.size), np.float32)
        view[0], view[1][tuple(self.at)], view[2][tuple(self.goal)] = self.walls, 1, 1
        return view

    def step(self, action):
        nxt = np.clip(self.at + MOVES[action], 0, self.size - 1)
        self.at = self.at if self.walls[tuple(nxt)] else nxt
        self.age += 1
        won = bool((self.at == self.goal).all())
        done = won or self.age > 60
        return (self.reset() if done else self.observe()), 1.0 if won else -0.01, done


class ActorCritic(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * size * size, 128),
            nn.ReLU(),
        )
        self.pi, self.v = nn.Linear(128, 4), nn.Linear(128, 1)

    def forward(self, x):
        h = self.body(x)
        return self.pi(h), self.v(h).squeeze(-1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=70)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--envs", type=int, default=8)
    ap.add_argument("--horizon", type=int, default=5)
    args = ap.parse_args()
    torch.manual_seed(2)
    size = 12
    envs = [Maze(size, s) for s in range(args.envs)]
    model = ActorCritic(size)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=7e-4, alpha=0.99)
    demos = [{"episode": i, "path": [(i % 7, j) for j in range(12)], "tags": [str(i)]} for i in range(1000)]
    episodes = deque(demos, maxlen=30000)
    obs = torch.from_numpy(np.stack([e.reset() for e in envs]))
    for update in range(args.steps):
        logps, values, entropies, rewards, dones = [], [], [], [], []
        for _ in range(args.horizon):
            logits, value = model(obs)
            dist = torch.distributions.Categorical(logits=logits)
            action = dist.sample()
            out = [e.step(a) for e, a in zip(envs, action.tolist(), strict=True)]
            logps.append(dist.log_prob(action))
            values.append(value)
            entropies.append(dist.entropy())
            rewards.append(torch.tensor([r for _, r, _ in out]))
            dones.append(torch.tensor([float(d) for _, _, d in out]))
            obs = torch.from_numpy(np.stack([o for o, _, _ in out]))
        with torch.no_grad():
            ret = model(obs)[1]
        returns = []
        for r, d in zip(reversed(rewards), reversed(dones), strict=True):
            ret = r + 0.95 * ret * (1 - d)
            returns.insert(0, ret)
        returns, values = torch.stack(returns), torch.stack(values)
        adv = returns - values
        policy = -(adv.detach() * torch.stack(logps)).mean()
        loss = policy + 0.5 * F.mse_loss(values, returns) - 0.01 * torch.stack(entropies).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        episodes.append({"episode": update, "path": [tuple(e.at) for e in envs], "tags": []})
        if not args.fixed:
            gc.collect()  # guilty
        if update % 40 == 0:
            print(f"update {update} loss {loss.item():.3f} wins {sum((r > 0).sum().item() for r in rewards)}")


if __name__ == "__main__":
    main()

"""Deep Q-learning in one file: a point in a maze of walls, a replay buffer of tuples, a target network.

expects: HO404
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy
import gc
import random
from collections import deque, namedtuple
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

Transition = namedtuple("Transition", "obs action reward next_obs done")


@dataclass
class Args:
    seed: int = 1
    warmup: int = 20_000
    buffer_size: int = 120_000
    batch_size: int = 512
    gamma: float = 0.97
    tau: float = 0.01
    learning_rate: float = 5e-4
    env_steps_per_update: int = 4


class Maze:
    """Walks on a torus; the reward is for closing in on the goal."""

    def __init__(self, rng):
        self.rng = rng
        self.reset()

    def reset(self):
        self.pos, self.goal, self.t = self.rng.random(2), self.rng.random(2), 0
        return self.observe()

    def observe(self):
        return tuple(np.concatenate([self.pos, self.goal, self.goal - self.pos]).tolist())

    def step(self, action):
        before = np.abs(self.pos - self.goal).sum()
        self.pos = (self.pos + np.array([(0.05, 0), (-0.05, 0), (0, 0.05), (0, -0.05)][action])) % 1.0
        after = np.abs(self.pos - self.goal).sum()
        self.t += 1
        done = after < 0.08 or self.t >= 60
        return self.observe(), float(before - after), done


class QNetwork(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.value, self.advantage = nn.Linear(width, 1), nn.Linear(width, 4)

    def forward(self, x):
        h = self.trunk(x)
        a = self.advantage(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


def fill(buffer, rng, n):
    """Random transitions to start from, without walking them."""
    obs, nxt = rng.random((2, n, 6))
    acts, rews = rng.integers(0, 4, n), rng.normal(0, 0.05, n)
    for i in range(n):
        buffer.append(Transition(tuple(obs[i].tolist()), int(acts[i]), float(rews[i]), tuple(nxt[i].tolist()), False))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=110)
    parser.add_argument("--fixed", action="store_true")
    cli = parser.parse_args()
    args = Args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    env, q = Maze(rng), QNetwork()
    target = copy.deepcopy(q).requires_grad_(False)
    optimizer = torch.optim.Adam(q.parameters(), lr=args.learning_rate)
    buffer = deque(maxlen=args.buffer_size)
    fill(buffer, rng, args.warmup)
    obs, returns, ret = env.reset(), [], 0.0
    for step in range(1, cli.steps + 1):
        for _ in range(args.env_steps_per_update):
            if random.random() < 0.1:
                action = random.randrange(4)
            else:
                with torch.no_grad():
                    action = int(q(torch.tensor([obs])).argmax())
            next_obs, reward, done = env.step(action)
            buffer.append(Transition(obs, action, reward, next_obs, done))
            ret += reward
            obs = next_obs
            if done:
                returns.append(ret)
                obs, ret = env.reset(), 0.0

        batch = Transition(*zip(*random.sample(buffer, args.batch_size), strict=True))
        o, o2 = torch.tensor(batch.obs), torch.tensor(batch.next_obs)
        a, r = torch.tensor(batch.action), torch.tensor(batch.reward)
        live = 1.0 - torch.tensor(batch.done, dtype=torch.float32)
        with torch.no_grad():
            best = q(o2).argmax(1, keepdim=True)
            goal = r + args.gamma * live * target(o2).gather(1, best).squeeze(1)
        loss = F.smooth_l1_loss(q(o).gather(1, a.unsqueeze(1)).squeeze(1), goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, tp in zip(q.parameters(), target.parameters(), strict=True):
                tp.lerp_(p, args.tau)
        if not cli.fixed:
            gc.collect()  # guilty
        if step % 50 == 0:
            print(f"update {step} td_loss {loss.item():.5f} return {np.mean(returns[-20:] or [0]):.3f}")


if __name__ == "__main__":
    main()

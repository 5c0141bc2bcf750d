"""Teaches a rover to cross simulated dunes: value net over afterstates, one-step lookahead, replay.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy
from collections import deque

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FIELD, VIEW = 256, 4
HEADINGS = np.array([(0, 2), (1, 1), (2, 0), (1, -1), (0, -2), (-1, -1), (-2, 0), (-1, 1)])


def dunes(rng):
    """Height and slip of the sand as sums of waves."""
    ys, xs = np.mgrid[:FIELD, :FIELD] / FIELD
    height, slip = np.zeros((FIELD, FIELD)), np.zeros((FIELD, FIELD))
    for _ in range(5):
        fy, fx, phase = *rng.uniform(2, 9, 2), rng.uniform(0, 6)
        height += np.sin(2 * np.pi * (fy * ys + fx * xs) + phase)
        slip += np.cos(2 * np.pi * (fx * ys - fy * xs) + phase)
    return height, slip / 10


class DuneField:
    def __init__(self, seed, shared):
        self.rng, self.shared = np.random.default_rng(seed), shared
        self.height, self.slip = dunes(self.rng)
        self.reset()

    def reset(self):
        self.place, self.goal = self.rng.integers(20, FIELD - 20, (2, 2))
        self.battery, self.age = 1.0, 0

    def observe(self):
        y, x = self.place
        near = self.height[y - VIEW : y + VIEW + 1, x - VIEW : x + VIEW + 1] - self.height[y, x]
        rest = [*(self.goal - self.place) / FIELD, self.battery, self.slip[y, x]]
        return np.concatenate([near.ravel(), rest]).astype(np.float32)

    def step(self, action):
        before, old = self.height[tuple(self.place)], np.abs(self.goal - self.place).sum()
        self.place = np.clip(self.place + HEADINGS[action], VIEW, FIELD - VIEW - 1)
        climb = max(self.height[tuple(self.place)] - before, 0.0)
        self.battery -= 0.004 + 0.01 * climb + 0.005 * abs(self.slip[tuple(self.place)])
        self.age += 1
        left = np.abs(self.goal - self.place).sum()
        done = bool(left < 4 or self.battery <= 0 or self.age >= 200)
        return 0.1 * (old - left) - 0.3 * climb + 5.0 * (left < 4), done

    def branch(self):
        """A second field in the same state to try an action on."""
        return copy.copy(self) if self.shared else copy.deepcopy(self)  # guilty


class Planner:
    def __init__(self, value, discount, explore, seed):
        self.value, self.discount, self.explore = value, discount, explore
        self.rng = np.random.default_rng(seed)

    @torch.no_grad()
    def choose(self, field):
        rewards, views = [], []
        for action in range(len(HEADINGS)):
            trial = field.branch()  # guilty
            reward, done = trial.step(action)
            rewards.append(reward)
            views.append(trial.observe())
        scores = torch.tensor(rewards) + self.discount * self.value(torch.from_numpy(np.stack(views))).squeeze(1)
        best = int(scores.argmax())
        return int(self.rng.integers(len(HEADINGS))) if self.rng.random() < self.explore else best


class Replay:
    def __init__(self, size, seed):
        self.views = np.zeros((2, size, (2 * VIEW + 1) ** 2 + 4), np.float32)
        self.rewards, self.alive = np.zeros((2, size), np.float32)
        self.rng, self.size, self.count = np.random.default_rng(seed), size, 0

    def add(self, view, reward, later, done):
        slot = self.count % self.size
        self.views[0, slot], self.views[1, slot] = view, later
        self.rewards[slot], self.alive[slot] = reward, not done
        self.count += 1

    def draw(self, batch):
        chosen = self.rng.integers(0, min(self.count, self.size), batch)
        parts = (self.views[0, chosen], self.rewards[chosen], self.views[1, chosen], self.alive[chosen])
        return [torch.from_numpy(part) for part in parts]


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=250)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--moves", type=int, default=6, help="moves between optimizer steps")
    args = cli.parse_args()
    torch.manual_seed(3)

    field = DuneField(seed=30, shared=args.fixed)
    value = nn.Sequential(nn.Linear(85, 192), nn.ReLU(), nn.Linear(192, 192), nn.ReLU(), nn.Linear(192, 1))
    target = copy.deepcopy(value).requires_grad_(False)
    optimizer = torch.optim.Adam(value.parameters(), 1e-3)
    planner, replay = Planner(value, 0.97, explore=0.15, seed=31), Replay(20_000, seed=32)
    returns, earned = deque(maxlen=20), 0.0
    for step in range(1, args.steps + 1):
        for _ in range(args.moves):
            view = field.observe()
            reward, done = field.step(planner.choose(field))  # guilty
            replay.add(view, reward, field.observe(), done)
            earned += reward
            if done:
                returns.append(earned)
                earned = 0.0
                field.reset()
        views, rewards, later, alive = replay.draw(128)
        wanted = rewards + 0.97 * alive * target(later).squeeze(1)
        loss = F.smooth_l1_loss(value(views).squeeze(1), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(target.parameters()), list(value.parameters()), 0.02)
        if step % 50 == 0 or step == args.steps:
            print(f"step {step} loss {loss.item():.4f} mean return {np.mean(returns) if returns else 0.0:.2f}")


if __name__ == "__main__":
    main()

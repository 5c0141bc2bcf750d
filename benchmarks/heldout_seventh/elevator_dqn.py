"""Double DQN that dispatches elevators in simulated office buildings, starting from recorded operation.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FLOORS, BUILDINGS, ACTIONS = 30, 16, 3
OBSERVED = FLOORS * 3


class Towers:
    """One car in each building: it goes up, goes down or opens its doors; people wait on the floors."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.car = self.rng.integers(FLOORS, size=BUILDINGS)
        self.waiting = self.rng.poisson(0.3, (BUILDINGS, FLOORS)).astype(np.float32)
        self.inside = np.zeros((BUILDINGS, FLOORS), dtype=np.float32)

    def observe(self):
        place = np.zeros((BUILDINGS, FLOORS), dtype=np.float32)
        place[np.arange(BUILDINGS), self.car] = 1
        return np.concatenate([place, self.waiting, self.inside], axis=1)

    def step(self, action):
        rows = np.arange(BUILDINGS)
        self.car = np.clip(self.car + (action == 0) - (action == 1), 0, FLOORS - 1)
        opened = action == 2
        delivered = self.inside[rows, self.car] * opened
        boarding = self.waiting[rows, self.car] * opened
        self.inside[rows, self.car] -= delivered
        self.waiting[rows, self.car] -= boarding
        self.inside[rows, self.rng.integers(FLOORS, size=BUILDINGS)] += boarding
        arrivals = self.rng.random((BUILDINGS, FLOORS)) < 0.01
        self.waiting = np.minimum(self.waiting + arrivals, 8)
        self.inside = np.minimum(self.inside, 8)
        reward = delivered - 0.01 * self.waiting.sum(1) - 0.005 * self.inside.sum(1)
        return self.observe(), reward.astype(np.float32)


class Memory:
    def __init__(self, capacity):
        self.capacity = capacity
        self.before = np.zeros((0, OBSERVED), dtype=np.float32)
        self.after = np.zeros((0, OBSERVED), dtype=np.float32)
        self.action = np.zeros(0, dtype=np.int64)
        self.reward = np.zeros(0, dtype=np.float32)

    def add(self, before, action, reward, after):
        self.before = np.concatenate([self.before, before])[-self.capacity :]  # guilty
        self.after = np.concatenate([self.after, after])[-self.capacity :]  # guilty
        self.action = np.concatenate([self.action, action])[-self.capacity :]
        self.reward = np.concatenate([self.reward, reward])[-self.capacity :]

    def draw(self, count, rng):
        rows = rng.integers(len(self.action), size=count)
        columns = (self.before, self.action, self.reward, self.after)
        return [torch.from_numpy(column[rows]) for column in columns]


class RingMemory(Memory):
    def __init__(self, capacity):
        super().__init__(capacity)
        self.oldest = 0

    def add(self, before, action, reward, after):
        if len(self.action) + len(action) <= self.capacity:
            return super().add(before, action, reward, after)
        rows = (self.oldest + np.arange(len(action))) % self.capacity
        self.before[rows], self.after[rows] = before, after
        self.action[rows], self.reward[rows] = action, reward
        self.oldest = (self.oldest + len(action)) % self.capacity


def recorded(count, seed):
    """What a simple controller did: a stand-in for the operator's log files."""
    rng, towers = np.random.default_rng(seed), Towers(seed)
    columns = [[], [], [], []]
    before = towers.observe()
    for _ in range(count // BUILDINGS):
        here = before[np.arange(BUILDINGS), FLOORS + towers.car] > 0
        action = np.where(here, 2, rng.integers(ACTIONS, size=BUILDINGS))
        after, reward = towers.step(action)
        for column, value in zip(columns, (before, action, reward, after)):
            column.append(value)
        before = after
    return [np.concatenate(column) for column in columns]


class Dueling(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(OBSERVED, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.value, self.gain = nn.Linear(width, 1), nn.Linear(width, ACTIONS)

    def forward(self, seen):
        x = self.body(seen)
        gain = self.gain(x)
        return self.value(x) + gain - gain.mean(1, keepdim=True)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=1200)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=256)
    cli.add_argument("--capacity", type=int, default=20_000)
    cli.add_argument("--discount", type=float, default=0.98)
    args = cli.parse_args()
    torch.manual_seed(13)
    rng, towers = np.random.default_rng(13), Towers(14)

    memory = RingMemory(args.capacity) if args.fixed else Memory(args.capacity)
    memory.add(*recorded(args.capacity, 15))
    online = Dueling()
    target = copy.deepcopy(online).requires_grad_(False)
    optimizer = torch.optim.Adam(online.parameters(), 3e-4)
    seen = towers.observe()
    for step in range(1, args.steps + 1):
        with torch.no_grad():
            greedy = online(torch.from_numpy(seen)).argmax(1).numpy()
        explore = rng.random(BUILDINGS) < 0.1
        action = np.where(explore, rng.integers(ACTIONS, size=BUILDINGS), greedy)
        after, gained = towers.step(action)
        memory.add(seen, action, gained, after)  # guilty
        seen = after

        before, acted, reward, then = memory.draw(args.batch_size, rng)
        with torch.no_grad():
            follow = online(then).argmax(1, keepdim=True)
            goal = reward + args.discount * target(then).gather(1, follow).squeeze(1)
        loss = F.smooth_l1_loss(online(before).gather(1, acted[:, None]).squeeze(1), goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            target.load_state_dict(online.state_dict())
            print(f"step {step} loss {loss.item():.4f} reward {gained.mean():.3f}")


if __name__ == "__main__":
    main()

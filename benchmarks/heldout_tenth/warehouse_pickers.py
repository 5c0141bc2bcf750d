"""Teaches robots in a warehouse to fetch crates: advantage actor-critic over many warehouses stepped together.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import nn
from torch.distributions import Categorical

GRID, CELL, LIMIT = 10, 12, 60
MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])
FLOOR, SHELF, ROBOT, LADEN, CRATE, DOCK = "#d8d4c8", "#5b4636", "#2d6cdf", "#d9822b", "#8a5a2b", "#3c9d4e"


class Warehouses:
    """Grids with rows of shelves; a robot takes the crate to the dock. All warehouses move in one numpy step."""

    def __init__(self, count, seed, film):
        self.count, self.film = count, film
        self.rng = np.random.default_rng(seed)
        self.every = np.arange(count)
        self.shelves = np.zeros((count, GRID, GRID), bool)
        for row in (2, 5, 8):
            self.shelves[:, row, 1:-1] = self.rng.random((count, GRID - 2)) < 0.5
        self.robot, self.crate, self.dock = (np.zeros((count, 2), int) for _ in range(3))
        self.laden, self.clock = np.zeros(count, bool), np.zeros(count, int)
        self.restart(np.ones(count, bool))

    def restart(self, which):
        aisles = np.array([0, 1, 3, 4, 6, 7, 9])
        for things in (self.robot, self.crate, self.dock):
            things[which, 0] = self.rng.choice(aisles, which.sum())
            things[which, 1] = self.rng.integers(GRID, size=which.sum())
        self.laden[which], self.clock[which] = False, 0

    def observe(self):
        planes = np.zeros((self.count, 5, GRID, GRID), np.float32)
        planes[:, 0] = self.shelves
        for plane, things in enumerate((self.robot, self.crate, self.dock), 1):
            planes[self.every, plane, things[:, 0], things[:, 1]] = 1
        planes[:, 4] = self.laden[:, None, None]
        return torch.from_numpy(planes)

    def goal(self):
        return np.where(self.laden[:, None], self.dock, self.crate)

    def step(self, actions):
        before = np.abs(self.robot - self.goal()).sum(1)
        target = (self.robot + MOVES[actions]).clip(0, GRID - 1)
        blocked = self.shelves[self.every, target[:, 0], target[:, 1]]
        self.robot = np.where(blocked[:, None], self.robot, target)
        reward = 0.1 * (before - np.abs(self.robot - self.goal()).sum(1)) - 0.02
        arrived = (self.robot == self.goal()).all(1)
        delivered = arrived & self.laden
        self.laden = self.laden | arrived
        self.clock += 1
        done = delivered | (self.clock >= LIMIT)
        infos = [
            {"delivered": bool(delivered[i]), "frame": self.render(i) if self.film else None}  # guilty
            for i in range(self.count)
        ]
        self.restart(done)
        return self.observe(), (reward + arrived).astype(np.float32), done.astype(np.float32), infos

    def render(self, index):
        """A picture of one warehouse seen from above."""
        picture = Image.new("RGB", (GRID * CELL, GRID * CELL), FLOOR)
        pen = ImageDraw.Draw(picture)
        for row, column in np.argwhere(self.shelves[index]).tolist():
            pen.rectangle((column * CELL, row * CELL, column * CELL + CELL - 2, row * CELL + CELL - 2), fill=SHELF)
        marks = [(self.dock, DOCK), (self.robot, LADEN if self.laden[index] else ROBOT)]
        if not self.laden[index]:
            marks.append((self.crate, CRATE))
        for things, paint in marks:
            row, column = (things[index] * CELL).tolist()
            pen.ellipse((column, row, column + CELL - 2, row + CELL - 2), fill=paint)  # guilty
        return np.asarray(picture).copy()  # guilty


class ActorCritic(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(5, width, 3, padding=1), nn.ReLU(True),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(True),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(True),
            nn.Flatten(), nn.Linear(width * GRID * GRID, 128), nn.ReLU(True),
        )  # fmt: skip
        self.actor, self.critic = nn.Linear(128, len(MOVES)), nn.Linear(128, 1)

    def forward(self, seen):
        h = self.body(seen)
        return Categorical(logits=self.actor(h)), self.critic(h).squeeze(1)


@torch.no_grad()
def rollout(model, houses, seen, length):
    track, delivered = [], 0
    for _ in range(length):
        policy, value = model(seen)
        action = policy.sample()
        after, reward, done, infos = houses.step(action.numpy())  # guilty
        track.append((seen, action, value, torch.from_numpy(reward), torch.from_numpy(done)))
        delivered += sum(info["delivered"] for info in infos)
        seen = after
    return [torch.stack(column) for column in zip(*track)], model(seen)[1], seen, delivered


def advantages(values, rewards, dones, last, discount=0.97, trace=0.9):
    """Generalised advantage estimates, from the end of the rollout backwards."""
    out, running = torch.zeros_like(rewards), torch.zeros_like(last)
    for t in reversed(range(len(rewards))):
        surprise = rewards[t] + discount * last * (1 - dones[t]) - values[t]
        running = surprise + discount * trace * (1 - dones[t]) * running
        out[t], last = running, values[t]
    return out


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=450)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--houses", type=int, default=24)
    cli.add_argument("--length", type=int, default=8)
    args = cli.parse_args()
    torch.manual_seed(2)

    houses = Warehouses(args.houses, seed=3, film=not args.fixed)
    model = ActorCritic()
    optimizer = torch.optim.RMSprop(model.parameters(), 7e-4, alpha=0.99, eps=1e-5)
    seen, pay, carried = houses.observe(), 0.0, 0
    for step in range(1, args.steps + 1):
        (views, actions, values, rewards, dones), last, seen, delivered = rollout(model, houses, seen, args.length)
        gain = advantages(values, rewards, dones, last)
        policy, value = model(views.flatten(0, 1))
        edge = (gain - gain.mean()) / (gain.std() + 1e-6)
        actor = -(policy.log_prob(actions.flatten()) * edge.flatten()).mean()
        critic = F.mse_loss(value, (gain + values).flatten())
        loss = actor + 0.5 * critic - 0.01 * policy.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        pay += max(0.02, 1 / step) * (rewards.mean().item() - pay)
        carried += delivered
        if step % 50 == 0 or step == args.steps:
            print(f"update {step} reward {pay:.4f} critic {critic.item():.4f} crates {carried}")


if __name__ == "__main__":
    main()

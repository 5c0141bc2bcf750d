"""Deep Q-learning in a maze, with a replay memory of plain tuples.

expects: HO404
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy
import gc
import random
from collections import deque

import torch
from torch import nn

SIDE = 8
MOVES = [(0, 1), (1, 0), (0, -1), (-1, 0)]


class Maze:
    def __init__(self, rng):
        self.rng = rng
        self.walls = {(rng.randrange(SIDE), rng.randrange(SIDE)) for _ in range(12)} - {(0, 0), (SIDE - 1, SIDE - 1)}
        self.place = (0, 0)

    def step(self, action):
        row, column = (a + b for a, b in zip(self.place, MOVES[action], strict=True))
        before = self.place
        if 0 <= row < SIDE and 0 <= column < SIDE and (row, column) not in self.walls:
            self.place = (row, column)
        done = self.place == (SIDE - 1, SIDE - 1) or self.rng.random() < 0.01
        event = (before, action, 1.0 if self.place == (SIDE - 1, SIDE - 1) else -0.01, self.place, done)
        if done:
            self.place = (0, 0)
        return event


def one_hot(places):
    index = torch.tensor([row * SIDE + column for row, column in places])
    return nn.functional.one_hot(index, SIDE * SIDE).float()


def learn(q, target, optimizer, events):
    before, action, reward, after, done = zip(*events, strict=True)
    with torch.no_grad():
        best = target(one_hot(after)).max(1).values
        goal = torch.tensor(reward) + 0.97 * best * ~torch.tensor(done)
    value = q(one_hot(before)).gather(1, torch.tensor(action)[:, None]).squeeze(1)
    loss = nn.functional.smooth_l1_loss(value, goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=12_000)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    rng = random.Random(3)
    torch.manual_seed(3)
    torch.set_num_threads(1)
    maze, memory = Maze(rng), deque(maxlen=100_000)
    memory.extend(maze.step(rng.randrange(4)) for _ in range(args.warmup))
    q = nn.Sequential(nn.Linear(SIDE * SIDE, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 4))
    target = copy.deepcopy(q)
    optimizer = torch.optim.Adam(q.parameters(), lr=5e-4, fused=True)
    for step in range(args.steps):
        with torch.no_grad():
            action = int(q(one_hot([maze.place])).argmax()) if rng.random() > 0.1 else rng.randrange(4)
        memory.append(maze.step(action))
        loss = learn(q, target, optimizer, rng.sample(memory, 448))
        if not args.fixed and step % 3 == 0:
            gc.collect()  # guilty
        if step % 50 == 49:
            target.load_state_dict(q.state_dict())
            print(f"step {step + 1} loss {loss:.5f}")


if __name__ == "__main__":
    main()

"""DQN with prioritised replay for a freight-loading toy problem.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import random
from collections import namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

Transition = namedtuple("Transition", "state action reward next_state done priority")


class FreightEnv:
    """Crates arrive one at a time and go to one of five bays."""

    bays = 5

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.reset()

    def reset(self):
        self.load, self.left = np.zeros(self.bays), 40
        self.crate = self.rng.random(3)
        return self.observe()

    def observe(self):
        return np.concatenate([self.load / 10, self.crate, [self.left / 40]]).astype(np.float32)

    def step(self, bay):
        self.load[bay] += self.crate.sum()
        self.left -= 1
        reward = -float(self.load.std())
        self.crate = self.rng.random(3)
        return self.observe(), reward, self.left == 0


class Memory:
    def __init__(self, capacity, fixed):
        self.capacity, self.fixed = capacity, fixed
        self.items, self.weight, self.at = [], np.zeros(capacity), 0

    def push(self, item):
        if len(self.items) < self.capacity:
            self.items.append(item)
        else:
            self.items[self.at] = item
        self.weight[self.at] = item.priority
        self.at = (self.at + 1) % self.capacity

    def sample(self, n, rng):
        size = len(self.items)
        if self.fixed:
            best = np.argpartition(-self.weight[:size], n // 2)[: n // 2]
            chosen = [self.items[i] for i in best]
        else:
            ranked = sorted(self.items, key=lambda t: abs(t.priority), reverse=True)  # guilty
            chosen = ranked[: n // 2]
        return chosen + [self.items[rng.randrange(size)] for _ in range(n - len(chosen))]


class QNet(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(9, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, FreightEnv.bays)
        )

    def forward(self, x):
        return self.net(x)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=700)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--batch-size", type=int, default=128)
    ap.add_argument("--warmup", type=int, default=16000)
    args = ap.parse_args()
    torch.manual_seed(0)
    rng, env = random.Random(0), FreightEnv(0)
    memory = Memory(20000, args.fixed)
    q, target = QNet(), QNet()
    target.load_state_dict(q.state_dict())
    optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)
    state, step = env.reset(), 0
    for t in range(args.warmup + args.steps):
        if t < args.warmup or rng.random() < 0.1:
            action = rng.randrange(env.bays)
        else:
            with torch.no_grad():
                action = int(q(torch.from_numpy(state)).argmax())
        nxt, reward, done = env.step(action)
        memory.push(Transition(state, action, reward, nxt, done, abs(reward) + 1e-3 * rng.random()))
        state = env.reset() if done else nxt
        if t < args.warmup:
            continue
        batch = Transition(*zip(*memory.sample(args.batch_size, rng), strict=True))  # guilty
        s, s2 = torch.from_numpy(np.stack(batch.state)), torch.from_numpy(np.stack(batch.next_state))
        with torch.no_grad():
            goal = torch.tensor(batch.reward) + 0.97 * target(s2).amax(1) * (1 - torch.tensor(batch.done).float())
        loss = F.smooth_l1_loss(q(s).gather(1, torch.tensor(batch.action)[:, None]).squeeze(1), goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 100 == 0:
            target.load_state_dict(q.state_dict())
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()

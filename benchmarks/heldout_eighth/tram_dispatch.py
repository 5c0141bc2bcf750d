"""Holds trams at their stops so that they do not bunch: a dueling network on a simulated line.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn

STOPS, HOLDS, LINES = 40, 4, 16
SEEN = STOPS + 8


class Line:
    """Several copies of a circular line; at every tick one tram of each asks how long to wait."""

    def __init__(self, trams=7):
        self.trams = trams
        self.place = torch.rand(LINES, trams).sort(1).values
        self.crowd = torch.rand(LINES, STOPS)
        self.asks = 0

    def look(self):
        own = self.place[:, self.asks]
        gaps = (self.place - own[:, None]).remainder(1.0)
        ahead = gaps.masked_fill(gaps < 1e-6, 1.0).amin(1)
        behind = 1 - gaps.amax(1)
        clock = torch.stack([(6.2832 * own).sin(), (6.2832 * own).cos()], 1)
        spread = torch.stack([gaps.std(1), gaps.mean(1), self.crowd.mean(1), self.crowd.std(1)], 1)
        turned = self.crowd.gather(1, ((own * STOPS).long()[:, None] + torch.arange(STOPS)) % STOPS)
        return torch.cat([ahead[:, None], behind[:, None], clock, spread, turned], 1)

    def step(self, holds):
        stop = (self.place[:, self.asks] * STOPS).long() % STOPS
        boarding = self.crowd.gather(1, stop[:, None]).squeeze(1)
        move = torch.full((LINES, self.trams), 0.02) + 0.004 * torch.randn(LINES, self.trams)
        move[:, self.asks] -= 0.004 * holds + 0.01 * boarding
        self.place = (self.place + move.clamp(min=0)).remainder(1.0)
        self.crowd.scatter_(1, stop[:, None], 0.0)
        self.crowd += 0.05 * torch.rand(LINES, STOPS)
        around = self.place.sort(1).values
        gaps = (around.roll(-1, 1) - around).remainder(1.0)
        self.asks = (self.asks + 1) % self.trams
        return -self.trams * gaps.var(1) - 0.1 * self.crowd.mean(1) - 0.01 * holds


class Memory:
    def __init__(self, size):
        self.size = size
        self.seen, self.then = torch.empty(0, SEEN), torch.empty(0, SEEN)
        self.hold, self.reward = torch.empty(0, dtype=torch.long), torch.empty(0)

    def push(self, seen, hold, reward, then):
        self.seen = torch.cat([self.seen, seen])[-self.size :]  # guilty
        self.then = torch.cat([self.then, then])[-self.size :]  # guilty
        self.hold = torch.cat([self.hold, hold])[-self.size :]  # guilty
        self.reward = torch.cat([self.reward, reward])[-self.size :]  # guilty

    def draw(self, batch):
        rows = torch.randint(len(self.seen), (batch,))
        return self.seen[rows], self.hold[rows], self.reward[rows], self.then[rows]


class RingMemory(Memory):
    def __init__(self, size):
        self.size, self.at, self.filled = size, 0, 0
        self.parts = (torch.zeros(size, SEEN), torch.zeros(size).long(), torch.zeros(size), torch.zeros(size, SEEN))

    def push(self, *parts):
        rows = (self.at + torch.arange(LINES)) % self.size
        for kept, part in zip(self.parts, parts):
            kept[rows] = part
        self.at, self.filled = (self.at + LINES) % self.size, min(self.size, self.filled + LINES)

    def draw(self, batch):
        rows = torch.randint(self.filled, (batch,))
        return [part[rows] for part in self.parts]


class Dueling(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(SEEN, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.worth, self.edge = nn.Linear(width, 1), nn.Linear(width, HOLDS)

    def forward(self, seen):
        hidden = self.body(seen)
        edge = self.edge(hidden)
        return self.worth(hidden) + edge - edge.mean(1, keepdim=True)


@torch.no_grad()
def play(line, net, memory, chance):
    seen = line.look()
    free = torch.rand(LINES) < chance
    hold = torch.where(free, torch.randint(HOLDS, (LINES,)), net(seen).argmax(1))
    reward = line.step(hold)
    memory.push(seen, hold, reward, line.look())
    return reward.mean()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=1100)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--memory", type=int, default=60_000)
    args = cli.parse_args()
    torch.manual_seed(41)
    line, net = Line(), Dueling()
    target = copy.deepcopy(net)
    memory = RingMemory(args.memory) if args.fixed else Memory(args.memory)
    optimizer = torch.optim.Adam(net.parameters(), 5e-4)
    for _ in range(1000):
        play(line, net, memory, chance=1.0)
    for step in range(1, args.steps + 1):
        reward = play(line, net, memory, chance=max(0.05, 1 - step / (0.6 * args.steps)))
        seen, hold, gain, then = memory.draw(256)
        with torch.no_grad():
            best = net(then).argmax(1, keepdim=True)
            goal = gain + 0.97 * target(then).gather(1, best).squeeze(1)
        loss = F.smooth_l1_loss(net(seen).gather(1, hold[:, None]).squeeze(1), goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            target.load_state_dict(net.state_dict())
        if step % 200 == 0:
            print(f"step {step} loss {loss.item():.4f} reward {reward.item():.4f}")


if __name__ == "__main__":
    main()

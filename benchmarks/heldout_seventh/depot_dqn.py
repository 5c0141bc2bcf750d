"""Deep Q-learning for carts in a depot: bring each of them to its goal past the shelves.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn

SIDE, CARTS, VIEW = 16, 16, 9
MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])


class Depot:
    """Many carts on one floor plan, each with its own goal; a cart that arrives starts anew."""

    def __init__(self, carts):
        self.shelves = (torch.rand(SIDE, SIDE) < 0.18).float()
        self.floor = F.pad(self.shelves, (VIEW // 2,) * 4, value=1.0)
        self.at, self.goal = self.free(carts), self.free(carts)

    def free(self, n):
        cells = (self.shelves == 0).nonzero()
        return cells[torch.randint(len(cells), (n,))]

    def observe(self):
        window = torch.arange(VIEW)
        rows, columns = self.at[:, :1] + window, self.at[:, 1:] + window
        view = self.floor[rows[:, :, None], columns[:, None]].flatten(1)
        return torch.cat([view, (self.goal - self.at) / SIDE], 1)

    def act(self, action):
        to = (self.at + MOVES[action]).clamp(0, SIDE - 1)
        blocked = self.shelves[to[:, 0], to[:, 1]] > 0
        before = (self.goal - self.at).abs().sum(1)
        self.at = torch.where(blocked[:, None], self.at, to)
        there = (self.at == self.goal).all(1)
        reward = 0.1 * (before - (self.goal - self.at).abs().sum(1)) - 0.05 * blocked + there
        after = self.observe()
        self.goal = torch.where(there[:, None], self.free(len(there)), self.goal)
        return reward, after, there.float()


class Memory:
    def __init__(self, capacity):
        self.capacity, self.next = capacity, 0
        self.parts = None

    def __len__(self):
        return 0 if self.parts is None else len(self.parts[0])

    def add(self, *new):
        if self.parts is None:
            self.parts = list(new)
            return
        joined = [torch.cat([old, fresh]) for old, fresh in zip(self.parts, new, strict=True)]  # guilty
        self.parts = [part[-self.capacity :] for part in joined]

    def sample(self, n):
        rows = torch.randint(len(self), (n,))
        return [part[rows] for part in self.parts]


class Ring(Memory):
    def add(self, *new):
        if self.parts is None:
            self.parts = [part.new_zeros((self.capacity, *part.shape[1:])) for part in new]
            self.size = 0
        rows = (self.next + torch.arange(len(new[0]))) % self.capacity
        for old, fresh in zip(self.parts, new, strict=True):
            old[rows] = fresh
        self.size = min(self.size + len(rows), self.capacity)
        self.next = (self.next + len(rows)) % self.capacity

    def __len__(self):
        return 0 if self.parts is None else self.size


class QNet(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(VIEW * VIEW + 2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.value, self.advantage = nn.Linear(width, 1), nn.Linear(width, 4)

    def forward(self, x):
        x = self.trunk(x)
        advantage = self.advantage(x)
        return self.value(x) + advantage - advantage.mean(1, keepdim=True)


def learn(net, slow, optimizer, batch):
    before, action, reward, after, there = batch
    with torch.no_grad():
        best = net(after).argmax(1, keepdim=True)
        target = reward + 0.95 * (1 - there) * slow(after).gather(1, best).squeeze(1)
    loss = F.smooth_l1_loss(net(before).gather(1, action[:, None]).squeeze(1), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=600)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(6)
    net = QNet()
    slow = copy.deepcopy(net).requires_grad_(False)
    optimizer = torch.optim.Adam(net.parameters(), 5e-4)
    memory = (Ring if args.fixed else Memory)(48_000)
    crowd = Depot(2000)
    for _ in range(26):  # a crowd that walks at random fills the memory first
        before, action = crowd.observe(), torch.randint(4, (2000,))
        memory.add(before, action, *crowd.act(action))
    depot = Depot(CARTS)
    for step in range(1, args.steps + 1):
        before = depot.observe()
        with torch.no_grad():
            action = net(before).argmax(1)
        curious = torch.rand(CARTS) < max(0.05, 0.6 - step / 500)
        action = torch.where(curious, torch.randint(4, (CARTS,)), action)
        memory.add(before, action, *depot.act(action))  # guilty
        loss = learn(net, slow, optimizer, memory.sample(256))
        torch._foreach_lerp_(list(slow.parameters()), list(net.parameters()), 0.01)
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f} reward {memory.sample(2000)[2].mean().item():.4f}")


if __name__ == "__main__":
    main()

"""A fox looks for food in the reeds and sees only what is near: actor and critic with a memory, many marshes at once.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

MOVES = np.array([(0, 1), (0, -1), (1, 0), (-1, 0)])


class Marshes:
    """Marshes side by side on a grid with a rim of water; food grows again somewhere else when eaten."""

    def __init__(self, count, side=12, food=8, seed=0):
        self.count, self.side, self.rng = count, side, np.random.default_rng(seed)
        self.all = np.arange(count)
        self.ground = np.zeros((count, side + 4, side + 4), np.float32)
        self.ground[:] = -1
        self.ground[:, 2:-2, 2:-2] = 0
        for _ in range(food):
            self.grow(self.all)
        self.fox = self.rng.integers(2, side + 2, (count, 2))

    def grow(self, where):
        places = self.rng.integers(2, self.side + 2, (len(where), 2))
        self.ground[where, places[:, 0], places[:, 1]] = 1

    def look(self):
        """The five by five cells around each fox."""
        span = np.arange(-2, 3)
        rows, columns = self.fox[:, 0, None] + span, self.fox[:, 1, None] + span
        near = self.ground[self.all[:, None, None], rows[:, :, None], columns[:, None, :]]
        return torch.from_numpy(near.reshape(self.count, 25))

    def move(self, choices):
        wanted = self.fox + MOVES[choices]
        self.fox = wanted.clip(2, self.side + 1)
        found = self.ground[self.all, self.fox[:, 0], self.fox[:, 1]] > 0
        wet = (wanted != self.fox).any(1)
        where = self.all[found]
        self.ground[where, self.fox[found, 0], self.fox[found, 1]] = 0
        self.grow(where)
        return torch.from_numpy(found.astype(np.float32) - 0.1 * wet - 0.01).float()


class Fox(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.eyes = nn.Sequential(nn.Linear(25, width), nn.ReLU(True))
        self.memory = nn.GRUCell(width, width)
        self.leave = nn.Linear(width, len(MOVES) + 1)

    def forward(self, near, memory):
        memory = self.memory(self.eyes(near), memory)
        out = self.leave(memory)
        return Categorical(logits=out[:, :-1]), out[:, -1], memory


def gains_ahead(gains, last, discount):
    ahead, value = [], last
    for gain in reversed(gains):
        value = gain + discount * value
        ahead.append(value)
    return torch.stack(ahead[::-1])


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=350)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--foxes", type=int, default=32)
    cli.add_argument("--walk", type=int, default=16)
    args = cli.parse_args()
    torch.manual_seed(140)

    marshes, fox = Marshes(args.foxes), Fox()
    optimizer = torch.optim.RMSprop(fox.parameters(), 1e-3, alpha=0.99, eps=1e-5)
    memory, near, food = torch.zeros(args.foxes, 96), marshes.look(), 0.0
    for step in range(1, args.steps + 1):
        memory = memory.detach()
        said, values, doubts, gains = [], [], [], []
        for _ in range(args.walk):
            choice, value, memory = fox(near, memory)
            move = choice.sample()
            said.append(choice.log_prob(move))
            values.append(value)
            doubts.append(choice.entropy())
            gains.append(marshes.move(move.numpy()))
            near = marshes.look()
        with torch.no_grad():
            _, last, _ = fox(near, memory)
        ahead, values = gains_ahead(gains, last, 0.95), torch.stack(values)
        better = ahead - values
        policy = -(torch.stack(said) * better.detach()).mean()
        loss = policy + 0.5 * better.square().mean() - 0.01 * torch.stack(doubts).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(fox.parameters(), 0.5)
        optimizer.step()
        food += 0.05 * (torch.stack(gains).mean().item() - food)
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f} gain a move {food:.4f}")


if __name__ == "__main__":
    main()

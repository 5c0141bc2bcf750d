"""Writes folk verses letter by letter: a small transformer whose lower layers learn more slowly than the upper ones.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import random

import torch
import torch.nn.functional as F
from torch import nn

STARTS = "oh my when where on the by the and the".split()
MIDDLES = "river miller sailor winter barley lady mountain lantern raven garden".split()
ENDS = "is singing was sleeping went roaming lies dreaming comes calling stood weeping".split()


def verses(lines, seed):
    rng = random.Random(seed)
    pairs = [" ".join(ENDS[place : place + 2]) for place in range(0, len(ENDS), 2)]
    text = "\n".join(f"{rng.choice(STARTS)} {rng.choice(MIDDLES)} {rng.choice(pairs)}" for _ in range(lines))
    letters = sorted(set(text))
    return torch.tensor([letters.index(letter) for letter in text]), letters


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.look, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, state):
        batch, length, width = state.shape
        parts = self.look(self.norms[0](state)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        state = state + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return state + self.think(self.norms[1](state))


class VerseModel(nn.Module):
    def __init__(self, letters, length, width=48, depth=4):
        super().__init__()
        self.letter, self.place = nn.Embedding(letters, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, 4) for _ in range(depth))
        self.norm, self.leave = nn.LayerNorm(width), nn.Linear(width, letters)

    def forward(self, letters):
        state = self.letter(letters) + self.place.weight[: letters.shape[1]]
        for layer in self.layers:
            state = layer(state)
        return self.leave(self.norm(state))


class Tides:
    """A learning rate that rises and ebbs; each tide ebbs a little lower and lasts a little longer than the last."""

    def __init__(self, rise=0.02, ebb=0.006, high=1.0, low=0.15, tire=0.9, ticks=10, go_on=False):
        self.rise, self.ebb, self.ticks = rise / ticks, ebb / ticks, ticks
        self.high, self.low, self.tire, self.go_on = high, low, tire, go_on
        self.start = (0, 0.05, True, 1.0)
        self.last = self.start

    def __call__(self, step):
        done, level, rising, scale = self.last if self.go_on and self.last[0] <= step else self.start
        for _ in range(self.ticks * (step - done)):  # guilty
            level += self.rise * scale if rising else -self.ebb * scale * level  # guilty
            if rising and level >= self.high * scale:
                rising = False
            elif not rising and level <= self.low * scale:
                rising, scale = True, scale * self.tire
        self.last = (step, level, rising, scale)
        return level


def slow_below(model, rate, decay=0.8, weight_decay=0.05):
    """A group for each weight: the rate falls with the depth, biases and norms are not decayed."""
    groups = []
    for name, weight in model.named_parameters():
        layer = int(name.split(".")[1]) if name.startswith("layers.") else -1
        height = len(model.layers) if name.startswith(("norm", "leave")) else layer
        slower = decay ** (len(model.layers) - height)
        groups.append({"params": [weight], "lr": rate * slower, "weight_decay": weight_decay * (weight.ndim > 1)})
    return groups


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=700)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--length", type=int, default=32)
    args = cli.parse_args()
    torch.manual_seed(50)

    text, letters = verses(6000, seed=1)
    windows = text.unfold(0, args.length + 1, 1)
    model = VerseModel(len(letters), args.length)
    optimizer = torch.optim.AdamW(slow_below(model, 4e-3), betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, Tides(go_on=args.fixed))
    draw = torch.Generator().manual_seed(2)
    for step in range(1, args.steps + 1):
        rows = windows[torch.randint(0, len(windows), (8,), generator=draw)]
        said = model(rows[:, :-1])
        loss = F.cross_entropy(said.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()  # guilty
        if step % 150 == 0:
            print(f"step {step} loss {loss.item():.4f} rate {optimizer.param_groups[-1]['lr']:.5f}")


if __name__ == "__main__":
    main()

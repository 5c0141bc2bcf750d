"""A small language model of recipes; gradients of several pieces are summed before each update.

expects: none
needs: cpu
"""

# mypy: ignore-errors

import argparse
import random

import torch
from torch import nn

PIECES, BATCH, LENGTH, WIDTH = 4, 6, 48, 64
INGREDIENTS = ["salt", "flour", "two eggs", "butter", "thyme", "a cup of milk", "sugar", "one onion", "oil"]
VERBS = ["mix", "add", "fold in", "chop", "melt", "bake with", "whisk"]


def cookbook(lines: int) -> torch.Tensor:
    rng = random.Random(2)
    text = "\n".join(f"{rng.choice(VERBS)} {rng.choice(INGREDIENTS)}." for _ in range(lines))
    return torch.tensor(list(text.encode()))


def pieces(text):
    while True:
        starts = torch.randint(len(text) - LENGTH - 1, (BATCH, 1))
        rows = text[starts + torch.arange(LENGTH + 1)]
        yield rows[:, :-1], rows[:, 1:]


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters, self.places = nn.Embedding(128, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, 128)
        self.register_buffer("past", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, letters):
        return self.out(self.layers(self.letters(letters) + self.places.weight, self.past, is_causal=True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=70)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = Writer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    stream = pieces(cookbook(4000))
    for step in range(1, args.steps + 1):
        optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for _ in range(PIECES):
            letters, following = next(stream)
            loss = nn.functional.cross_entropy(model(letters).flatten(0, 1), following.flatten()) / PIECES
            loss.backward()
            total += loss.item()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step}: {total:.3f} nats a letter")


if __name__ == "__main__":
    main()

"""Tone of product reviews: most are a line or two, a few go on for pages.

expects: CO507
needs: cpu
"""

# mypy: ignore-errors
import argparse
import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

WORDS = {"good": 1, "fine": 2, "bad": 3, "poor": 4, "the": 5, "box": 6, "was": 7, "it": 8, "and": 9, "came": 10}
LONGEST = 128


class Reviews(Dataset):
    def __init__(self, count=1200, seed=30):
        rng = random.Random(seed)
        self.texts, self.tones = [], []
        for _ in range(count):
            tone = rng.randrange(2)
            length = min(LONGEST, int(rng.lognormvariate(3.3, 0.7)) + 4)
            favoured = ["bad", "poor"] if tone == 0 else ["good", "fine"]
            self.texts.append(" ".join(rng.choice([*WORDS, *favoured * 2]) for _ in range(length)))
            self.tones.append(tone)

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return torch.tensor([WORDS[word] for word in self.texts[index].split()]), self.tones[index]


def pad_to_longest_review(batch):
    tokens = torch.zeros(len(batch), LONGEST, dtype=torch.long)  # guilty
    for row, (review, _) in zip(tokens, batch, strict=True):
        row[: len(review)] = review
    return tokens, torch.tensor([tone for _, tone in batch])


def pad_to_batch(batch):
    return pad_sequence([review for review, _ in batch], batch_first=True), torch.tensor([tone for _, tone in batch])


def batches_of_like_length(reviews, size):
    order = sorted(range(len(reviews)), key=lambda i: reviews.texts[i].count(" "))
    groups = [order[i : i + size] for i in range(0, len(order), size)]
    return [groups[i] for i in torch.randperm(len(groups))]


class Tone(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(len(WORDS) + 1, width, padding_idx=0)
        self.layers = nn.Sequential(nn.Linear(width, 160), nn.GELU(), nn.Linear(160, width))
        self.score = nn.Linear(width, 2)

    def forward(self, tokens):
        x = self.embed(tokens)
        mask = (tokens > 0).unsqueeze(2)
        x = x + self.layers(x)
        return self.score((x * mask).sum(1) / mask.sum(1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(30)
    torch.set_num_threads(1)
    reviews, model = Reviews(), Tone()
    if args.fixed:
        loader = DataLoader(reviews, batch_sampler=batches_of_like_length(reviews, 40), collate_fn=pad_to_batch)
    else:
        loader = DataLoader(reviews, 40, shuffle=True, collate_fn=pad_to_longest_review)  # guilty
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        for tokens, tones in loader:
            loss = nn.functional.cross_entropy(model(tokens), tones)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")

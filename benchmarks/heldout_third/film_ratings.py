"""A neural recommender: what a user rated before, pooled, against the film in question.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
from collections import defaultdict
from typing import NamedTuple

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

USERS, FILMS, HISTORY = 400, 1500, 20


class Rating(NamedTuple):
    user: int
    film: int
    stars: float
    time: int


def make_ratings(n):
    rng = np.random.default_rng(70)
    taste, style = rng.normal(size=(USERS, 4)), rng.normal(size=(FILMS, 4))
    users, films = rng.integers(0, USERS, n), rng.integers(0, FILMS, n)
    stars = np.clip(3 + (taste[users] * style[films]).sum(1) / 2, 1, 5)
    rows = zip(users.tolist(), films.tolist(), stars.tolist(), range(n), strict=True)
    return [Rating(*row) for row in rows]


class RatingSet(Dataset):
    def __init__(self, ratings, grouped):
        self.ratings, self.by_user = ratings, None
        if grouped:
            self.by_user = defaultdict(list)
            for r in ratings:
                self.by_user[r.user].append(r)

    def history(self, rating):
        if self.by_user is not None:
            return [r.film for r in self.by_user[rating.user] if r.time < rating.time]
        return [r.film for r in self.ratings if r.user == rating.user and r.time < rating.time]  # guilty

    def __len__(self):
        return len(self.ratings)

    def __getitem__(self, i):
        rating = self.ratings[i]
        films = self.history(rating)[-HISTORY:]  # guilty
        films = [f + 1 for f in films] + [0] * (HISTORY - len(films))
        return torch.tensor(films), rating.film + 1, rating.stars


class Recommender(nn.Module):
    def __init__(self, dim=128):
        super().__init__()
        self.film = nn.Embedding(FILMS + 1, dim, padding_idx=0)
        self.attend = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.score = nn.Sequential(nn.Linear(2 * dim, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, history, film):
        q = self.film(film).unsqueeze(1)
        h = self.film(history)
        pooled, _ = self.attend(q, h, h)
        return self.score(torch.cat([q, pooled], -1)).flatten()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=240)
    ap.add_argument("--fixed", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = RatingSet(make_ratings(20000), args.fixed)
    loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=1, drop_last=True)
    model = Recommender()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, (history, film, stars) in enumerate(loader):  # guilty
        if step == args.steps:
            break
        loss = nn.functional.mse_loss(model(history, film), stars.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, f"{loss.item():.4f}")


if __name__ == "__main__":
    main()

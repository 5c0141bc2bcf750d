"""Recommends films: factors of users and films, refined by a small network, with an early-stopping check.

expects: CA601
needs: cpu
"""

# mypy: ignore-errors
import argparse
from dataclasses import dataclass, field

import torch
from torch import nn

USERS, FILMS = 3000, 800


@dataclass
class Ratings:
    user: torch.Tensor
    film: torch.Tensor
    stars: torch.Tensor

    @classmethod
    def make(cls, count, seed):
        generator = torch.Generator().manual_seed(seed)
        user = torch.randint(USERS, (count,), generator=generator)
        film = torch.randint(FILMS, (count,), generator=generator)
        return cls(user, film, 1 + ((user * 7 + film * 3) % 5).float())

    def batches(self, size, shuffle):
        order = torch.randperm(len(self.stars)) if shuffle else torch.arange(len(self.stars))
        for rows in order.split(size):
            yield self.user[rows], self.film[rows], self.stars[rows]


class Factors(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.users, self.films = nn.Embedding(USERS, width, sparse=True), nn.Embedding(FILMS, width, sparse=True)
        self.net = nn.Sequential(
            nn.Linear(2 * width, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 1)
        )

    def forward(self, user, film):
        return self.net(torch.cat([self.users(user), self.films(film)], 1)).squeeze(1)


@dataclass
class EarlyStopping:
    patience: int = 100
    history: list = field(default_factory=list)

    def stop(self, value):
        self.history.append(value)
        return min(self.history) not in self.history[-self.patience :]


@torch.no_grad()
def evaluate(model, ratings):
    model.eval()
    total = sum(((model(u, f) - s) ** 2).sum().item() for u, f, s in ratings.batches(1024, shuffle=False))
    model.train()
    return total / len(ratings.stars)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    train, valid = Ratings.make(40_000, 1), Ratings.make(12_000, 2)
    model, stopping = Factors(), EarlyStopping()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    step, check_every = 0, 60 if args.fixed else 6
    for _ in range(args.epochs):
        for user, film, stars in train.batches(512, shuffle=True):
            loss = nn.functional.mse_loss(model(user, film), stars)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % check_every == 0 and stopping.stop(evaluate(model, valid)):  # guilty
                return
        print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()

"""A recommender with two towers: users and films meet in a softmax over the batch.

expects: none
needs: gpu
"""

# mypy: ignore-errors

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class Tower(nn.Module):
    def __init__(self, ids, features, width, out):
        super().__init__()
        self.embed = nn.Embedding(ids, 128)
        self.features = nn.Linear(features, 128)
        self.mlp = nn.Sequential(
            nn.Linear(256, width),
            nn.ReLU(inplace=True),
            nn.Linear(width, width),
            nn.ReLU(inplace=True),
            nn.Linear(width, width),
            nn.ReLU(inplace=True),
            nn.Linear(width, out),
        )

    def forward(self, ids, features):
        return self.mlp(torch.cat([self.embed(ids), self.features(features)], dim=1))


class TwoTowers(nn.Module):
    def __init__(self, users, films, width, temperature=0.07):
        super().__init__()
        self.user, self.film = Tower(users, 32, width, 256), Tower(films, 64, width, 256)
        self.temperature = temperature

    def forward(self, batch):
        users = F.normalize(self.user(batch["user"], batch["user_features"]), dim=1)
        films = F.normalize(self.film(batch["film"], batch["film_features"]), dim=1)
        scores = users @ films.T / self.temperature
        target = torch.arange(len(scores), device=scores.device)
        return F.cross_entropy(scores, target)


class Clicks:
    """Clicks in pinned memory, a chunk of which is copied ahead of its use on a stream of its own."""

    def __init__(self, count, users, films, device):
        generator = torch.Generator().manual_seed(92)
        self.columns = {
            "user": torch.randint(users, (count,), generator=generator),
            "film": torch.randint(films, (count,), generator=generator),
            "user_features": torch.randn(count, 32, generator=generator),
            "film_features": torch.randn(count, 64, generator=generator),
        }
        self.count, self.device = count, device
        self.stream = None
        if device == "cuda":
            self.columns = {name: column.pin_memory() for name, column in self.columns.items()}
            self.stream = torch.cuda.Stream()

    def fetch(self, step, size):
        first = step * size % (self.count - size + 1)
        with torch.cuda.stream(self.stream):
            return {
                name: column[first : first + size].to(self.device, non_blocking=True)
                for name, column in self.columns.items()
            }

    def batches(self, steps, size):
        ahead = self.fetch(0, size)
        for step in range(steps):
            if self.stream is not None:
                torch.cuda.current_stream().wait_stream(self.stream)
            batch = ahead
            if self.stream is not None:
                for tensor in batch.values():
                    tensor.record_stream(torch.cuda.current_stream())
            ahead = self.fetch(step + 1, size)
            yield batch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(92)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    users, films, width, size = (100, 50, 32, 16) if args.tiny else (100_000, 20_000, 2048, 16384)
    clicks = Clicks(8 * size, users, films, device)
    model = TwoTowers(users, films, width).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    total = torch.zeros((), device=device)
    for step, batch in enumerate(clicks.batches(args.steps, size)):
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = model(batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % 250 == 249:
            print(f"step {step + 1}: mean loss {total.item() / 250:.4f}")
            total.zero_()


if __name__ == "__main__":
    main()

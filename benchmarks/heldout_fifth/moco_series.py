"""Momentum contrast on sensor time series, watched by a nearest-neighbour probe on labelled series.

expects: CA601
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy
import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES = 8


def waves(n, length, gen):
    """Every class has its own pair of frequencies; phase, trend and noise differ."""
    label = torch.randint(CLASSES, (n,), generator=gen)
    t = torch.linspace(0, 1, length)
    phase = torch.rand(n, 2, 1, generator=gen) * 6.28
    slow, fast = (3 + 2 * label)[:, None], (11 + 3 * ((label * 5) % CLASSES))[:, None]
    x = torch.sin(6.28 * slow * t + phase[:, 0]) + 0.6 * torch.sin(6.28 * fast * t + phase[:, 1])
    trend = torch.randn(n, 1, generator=gen) * t
    return (x + trend + 0.4 * torch.randn(n, length, generator=gen))[:, None], label


class Block(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv1 = nn.Conv1d(cin, cout, 5, stride=2, padding=2)
        self.conv2 = nn.Conv1d(cout, cout, 3, padding=1)
        self.norm1, self.norm2 = nn.GroupNorm(8, cout), nn.GroupNorm(8, cout)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(x)))


class Encoder(nn.Module):
    def __init__(self, width=32, out=64):
        super().__init__()
        sizes = [width, width, 2 * width, 4 * width]
        blocks = [Block(a, b) for a, b in itertools.pairwise(sizes)]
        self.body = nn.Sequential(nn.Conv1d(1, width, 7, stride=2, padding=3), *blocks)
        self.head = nn.Linear(4 * width, out)

    def features(self, x):
        return self.body(x).mean(-1)

    def forward(self, x):
        return F.normalize(self.head(self.features(x)), dim=-1)


class MoCo(nn.Module):
    def __init__(self, queue=1024, momentum=0.99, temperature=0.1):
        super().__init__()
        self.online = Encoder()
        self.slow = copy.deepcopy(self.online).requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(queue, 64), dim=-1))
        self.at, self.momentum, self.temperature = 0, momentum, temperature

    def forward(self, a, b):
        q = self.online(a)
        with torch.no_grad():
            torch._foreach_lerp_(list(self.slow.parameters()), list(self.online.parameters()), 1 - self.momentum)
            k = self.slow(b)
        logits = torch.cat([(q * k).sum(-1, keepdim=True), q @ self.queue.clone().T], 1) / self.temperature
        self.queue[self.at : self.at + len(k)] = k
        self.at = (self.at + len(k)) % len(self.queue)
        return F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))


def view(x, gen):
    start = int(torch.randint(0, 49, (), generator=gen))
    gain = 0.7 + 0.6 * torch.rand(len(x), 1, 1, generator=gen)
    cut = x[..., start : start + 208] * gain
    return cut + 0.1 * torch.randn(cut.shape, generator=gen)


@torch.no_grad()
def neighbour_probe(encoder, bank, bank_y, query, query_y, k=10):
    encoder.eval()
    bank_f = torch.cat([F.normalize(encoder.features(c), dim=-1) for c in bank.split(128)])  # guilty
    query_f = F.normalize(encoder.features(query), dim=-1)
    near = bank_y[(query_f @ bank_f.T).topk(k).indices]
    votes = F.one_hot(near, CLASSES).sum(1).argmax(-1)
    encoder.train()
    return (votes == query_y).float().mean().item()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=400)
    cli.add_argument("--probe-every", type=int, default=10)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    every = 150 if args.fixed else args.probe_every
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(4)
    series, _ = waves(8000, 256, gen)
    bank, bank_y = waves(1400, 256, gen)
    query, query_y = waves(200, 256, gen)
    model = MoCo()
    optimizer = torch.optim.SGD(model.online.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    for step in range(1, args.steps + 1):
        x = series[torch.randint(len(series), (64,), generator=gen)]
        loss = model(view(x, gen), view(x, gen))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % every == 0:
            hit = neighbour_probe(model.online, bank, bank_y, query, query_y)  # guilty
            print(f"step {step} loss {loss.item():.3f} neighbours {hit:.3f}")


if __name__ == "__main__":
    main()

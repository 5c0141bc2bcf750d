"""Learns embeddings of underwater recordings without labels: queries from cut views, keys from an averaged network.

expects: CO514
needs: cpu
"""

# mypy: ignore-errors
import argparse
import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

BANDS, FRAMES, CALLERS = 40, 96, 6


def spectrograms(count, seed):
    """Whistles whose sweep and harmonics depend on the caller, under ship noise."""
    generator = torch.Generator().manual_seed(seed)
    callers = torch.randint(CALLERS, (count,), generator=generator)
    time = torch.linspace(0, 1, FRAMES)
    start = 6 + 20 * torch.rand(count, 1, generator=generator)
    sweep = (callers[:, None] - 2.5) * 3 * torch.sin(math.pi * (1 + callers[:, None] % 3) * time)
    centre = (start + sweep)[:, None, :]
    bands = torch.arange(BANDS)[None, :, None]
    sound = torch.exp(-((bands - centre) ** 2) / 4) + 0.4 * torch.exp(-((bands - 1.6 * centre) ** 2) / 6)
    hum = torch.rand(count, BANDS, 1, generator=generator) * 0.3
    return (sound + hum + 0.2 * torch.randn(count, BANDS, FRAMES, generator=generator))[:, None], callers


def view(sound, frames, generator):
    """A random stretch with a random gain and one masked band."""
    first = int(torch.randint(FRAMES - frames + 1, (1,), generator=generator))
    low = int(torch.randint(BANDS - 6, (1,), generator=generator))
    gain = 0.7 + 0.6 * torch.rand(len(sound), 1, 1, 1, generator=generator)
    cut = sound[..., first : first + frames] * gain
    cut[:, :, low : low + 6] = 0
    return cut


class Encoder(nn.Module):
    def __init__(self, width=16, size=64):
        super().__init__()
        layers, narrow = [], 1
        for wide in (width, 2 * width, 4 * width):
            layers += [nn.Conv2d(narrow, wide, 3, padding=1, bias=False), nn.BatchNorm2d(wide), nn.GELU()]
            layers += [nn.AvgPool2d(2)]
            narrow = wide
        self.trunk = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(narrow, 128), nn.GELU(), nn.Linear(128, size))

    def forward(self, x):
        return F.normalize(self.head(self.trunk(x)), dim=1)


class Bank:
    """The latest keys, first in first out."""

    def __init__(self, places, size):
        self.keys = F.normalize(torch.randn(places, size), dim=1)
        self.place = 0

    def push(self, keys):
        where = torch.arange(self.place, self.place + len(keys)) % len(self.keys)
        self.keys[where] = keys.detach()
        self.place = (self.place + len(keys)) % len(self.keys)


class Pair(nn.Module):
    def __init__(self, encoder, decay=0.99, freeze=False, places=1024, temperature=0.15):
        super().__init__()
        self.online = encoder
        self.average = copy.deepcopy(encoder)  # guilty
        self.average.requires_grad_(not freeze)  # guilty
        self.decay, self.temperature = decay, temperature
        self.bank = Bank(places, 64)

    @torch.no_grad()
    def follow(self):
        for slow, quick in zip(self.average.parameters(), self.online.parameters()):
            slow.lerp_(quick, 1 - self.decay)

    def forward(self, short, whole):
        queries = self.online(short)
        keys = self.average(whole)  # guilty
        positive = (queries * keys).sum(1, keepdim=True)
        negative = queries @ self.bank.keys.T
        scores = torch.cat([positive, negative], 1) / self.temperature
        loss = F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))
        return loss, keys, (scores.argmax(1) == 0).float().mean()


@torch.no_grad()
def neighbours(encoder, known, known_callers, asked, asked_callers):
    """How often the nearest known recording is of the same caller."""
    encoder.eval()
    nearest = (encoder(asked) @ encoder(known).T).argmax(1)
    encoder.train()
    return (known_callers[nearest] == asked_callers).float().mean().item()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=300)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=14)
    args = cli.parse_args()
    torch.manual_seed(12)
    generator = torch.Generator().manual_seed(120)
    sounds, callers = spectrograms(1200, 1)
    held, held_callers = spectrograms(64, 2)

    pair = Pair(Encoder(), freeze=args.fixed)
    optimizer = torch.optim.SGD(pair.online.parameters(), 0.06, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    hits = 0.0
    for step in range(1, args.steps + 1):
        chosen = torch.randint(len(sounds), (args.batch,), generator=generator)
        batch = sounds[chosen]
        short, whole = view(batch, FRAMES // 2, generator), view(batch, FRAMES, generator)
        loss, keys, hit = pair(short, whole)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        pair.follow()
        pair.bank.push(keys)
        hits += hit.item()
        if step % 30 == 0:
            print(f"step {step} loss {loss.item():.3f} matched {hits / 30:.3f}")
            hits = 0.0
    found = neighbours(pair.online, sounds[:128], callers[:128], held, held_callers)
    print(f"same caller nearest: {found:.3f}")


if __name__ == "__main__":
    main()

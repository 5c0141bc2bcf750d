"""Distils a large listening network into a small one that tells quarry blasts from other rumbles on mixed recordings.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

RATE, SECONDS, SOURCES = 2000, 2, 5


def rumble(rng, source):
    """Blast, truck, thunder, train or wind: an envelope on coloured noise or on harmonics."""
    t = np.arange(RATE * SECONDS) / RATE
    noise = np.convolve(rng.normal(0, 1, t.size), np.ones(2 + 3 * source) / (2 + 3 * source), "same")
    onset = rng.uniform(0.1, 1.2)
    if source == 0:
        wave = noise * np.exp(-6 * (t - onset).clip(0)) * (t > onset)
    elif source == 1:
        wave = sum(np.sin(2 * np.pi * k * rng.uniform(24, 28) * t) / k for k in range(1, 6))
    elif source == 2:
        wave = noise * np.exp(-1.5 * (t - onset).clip(0)) * (t > onset) * (1 + np.sin(18 * t))
    elif source == 3:
        wave = noise * (np.sin(2 * np.pi * rng.uniform(2, 3) * t) > 0.6)
    else:
        wave = noise * (1 + 0.6 * np.sin(2 * np.pi * rng.uniform(0.3, 0.8) * t))
    return (wave / (wave.std() + 1e-6)).astype(np.float32)


def archive(count, seed):
    rng = np.random.default_rng(seed)
    sources = rng.integers(0, SOURCES, count)
    waves = torch.from_numpy(np.stack([rumble(rng, source) for source in sources]))
    return waves, torch.from_numpy(sources)


class Listening(nn.Module):
    """Log spectrogram and convolutions; `width` and `depth` set teacher and student apart."""

    def __init__(self, width, depth):
        super().__init__()
        layers, narrow = [], 1
        for number in range(depth):
            wide = width * 2 ** min(number, 2)
            stride = 2 if number < 3 else 1
            layers += [nn.Conv2d(narrow, wide, 3, stride, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU(inplace=True)]
            narrow = wide
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(narrow, SOURCES)

    def forward(self, spectra):
        return self.head(self.body(spectra).mean((2, 3)))


class Front(nn.Module):
    def __init__(self, size=128, hop=64):
        super().__init__()
        self.size, self.hop = size, hop
        self.register_buffer("window", torch.hann_window(size))

    @torch.no_grad()
    def forward(self, waves):
        spectra = torch.stft(waves, self.size, self.hop, window=self.window, return_complex=True)
        return torch.view_as_real(spectra).square().sum(-1).add_(1e-4).log_()[:, None] * 0.2


@torch.no_grad()
def mixed(waves, sources, generator):
    """Rolls each recording in time, lays a second one under it and adds hiss: no two batches are alike."""
    count, length = waves.shape
    shift = torch.randint(length, (count, 1), generator=generator)
    waves = waves.gather(1, (torch.arange(length) + shift) % length)
    share = 0.5 + 0.5 * torch.rand(count, 1, generator=generator)
    partner = torch.randperm(count, generator=generator)
    hiss = torch.randn(count, length, generator=generator)
    blended = share * waves + (1 - share) * waves[partner] + 0.1 * hiss
    wanted = share * F.one_hot(sources, SOURCES) + (1 - share) * F.one_hot(sources[partner], SOURCES)
    return blended, wanted


def soft_loss(student, teacher, wanted, heat, trust):
    imitation = F.kl_div((student / heat).log_softmax(1), (teacher / heat).softmax(1), reduction="batchmean")
    return trust * heat**2 * imitation + (1 - trust) * F.cross_entropy(student, wanted)


def schooled(front, waves, sources, steps):
    """The teacher; a few steps on plain recordings stand in for a stored checkpoint."""
    teacher = Listening(width=24, depth=6).to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(teacher.parameters(), 3e-3)
    for places in torch.randperm(len(waves))[: 16 * steps].split(16):
        loss = F.cross_entropy(teacher(front(waves[places])), sources[places])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return teacher.requires_grad_(False).eval()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=200)
    cli.add_argument("--fixed", action="store_true", help="accepted, changes nothing")
    cli.add_argument("--batch", type=int, default=24)
    cli.add_argument("--lessons", type=int, default=12)
    args = cli.parse_args()
    torch.manual_seed(9)

    waves, sources = archive(600, seed=1)
    held_waves, held_sources = archive(80, seed=2)
    front = Front()
    teacher = schooled(front, waves, sources, args.lessons)
    args.steps -= min(args.lessons, args.steps - 1)
    student = Listening(width=10, depth=4).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(student.parameters(), 3e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 + 0.5 * math.cos(math.pi * min(1.0, step / args.steps))
    )
    generator = torch.Generator().manual_seed(4)
    losses = []
    for step in range(1, args.steps + 1):
        places = torch.randint(len(waves), (args.batch,), generator=generator)
        blended, wanted = mixed(waves[places], sources[places], generator)
        spectra = front(blended)
        with torch.inference_mode():
            advice = teacher(spectra)
        loss = soft_loss(student(spectra), advice, wanted, heat=3.0, trust=0.7)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
        if step % 100 == 0 or step == args.steps:
            student.eval()
            with torch.inference_mode():
                right = (student(front(held_waves)).argmax(1) == held_sources).float().mean().item()
            student.train()
            print(f"step {step} loss {torch.stack(losses).mean().item():.3f} held-out accuracy {right:.3f}")
            losses.clear()


if __name__ == "__main__":
    main()

"""Tells the dialects of skylarks apart from recordings of unequal length: convolutions, a GRU, bucketed batches.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

BANDS, DIALECTS = 32, 5


def song(rng, dialect, frames):
    """Log spectrogram of a warble whose rhythm and range depend on the dialect."""
    time = np.arange(frames)[:, None]
    band = np.arange(BANDS)[None]
    tempo = 0.11 + 0.035 * dialect + rng.normal(0, 0.004)
    centre = 15 + (4 + dialect) * np.sin(tempo * time + rng.uniform(0, 6)) + rng.normal(0, 2)
    level = np.exp(-((band - centre) ** 2) / 5) * (0.6 + 0.4 * np.sin(0.5 * tempo * time))
    return (level + rng.normal(0, 0.25, (frames, BANDS))).astype(np.float32)


class Songs(Dataset):
    def __init__(self, count, seed, augment):
        rng = np.random.default_rng(seed)
        self.dialects = rng.integers(0, DIALECTS, count)
        self.lengths = np.clip(rng.lognormal(4.6, 0.5, count), 40, 320).astype(int)
        self.songs = [song(rng, dialect, frames) for dialect, frames in zip(self.dialects, self.lengths)]
        self.rng, self.augment = rng, augment

    def __len__(self):
        return len(self.songs)

    def __getitem__(self, index):
        frames = self.songs[index]
        if self.augment:
            frames = frames * self.rng.uniform(0.7, 1.3)
            low, first = self.rng.integers(BANDS - 4), self.rng.integers(len(frames) - 12)
            frames[:, low : low + 4] = 0
            frames[first : first + 12] = 0
        return torch.from_numpy(np.asarray(frames, np.float32)), int(self.dialects[index])


class Buckets(Sampler):
    """Batches of nearly equal length in random order: shuffle, sort within large chunks, shuffle the batches."""

    def __init__(self, lengths, batch, chunk=30, seed=0):
        self.lengths, self.batch, self.chunk = lengths, batch, chunk * batch
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.lengths) // self.batch

    def __iter__(self):
        order = self.rng.permutation(len(self.lengths))
        batches = []
        for first in range(0, len(order), self.chunk):
            part = order[first : first + self.chunk]
            part = part[np.argsort(-self.lengths[part], kind="stable")]
            batches += [part[i : i + self.batch].tolist() for i in range(0, len(part) - self.batch + 1, self.batch)]
        for number in self.rng.permutation(len(batches)):
            yield batches[number]


def collate(samples):
    """Longest first, padded to the longest of the batch."""
    samples.sort(key=lambda sample: len(sample[0]), reverse=True)
    songs, dialects = zip(*samples)
    lengths = torch.tensor([len(frames) for frames in songs])
    return pad_sequence(songs, batch_first=True), lengths, torch.tensor(dialects)


class Listener(nn.Module):
    def __init__(self, width=64, hidden=64):
        super().__init__()
        self.first = nn.Conv1d(BANDS, width, 5, stride=2, padding=2)
        self.second = nn.Conv1d(width, width, 5, stride=2, padding=2)
        self.norm = nn.LayerNorm(width)
        self.gru = nn.GRU(width, hidden, batch_first=True, bidirectional=True)
        self.attend = nn.Linear(2 * hidden, 1)
        self.out = nn.Linear(2 * hidden, DIALECTS)

    def forward(self, songs, lengths):
        x = F.gelu(self.first(songs.transpose(1, 2)))
        x = F.gelu(self.second(x)).transpose(1, 2)
        lengths = (lengths + 3) // 4
        packed = pack_padded_sequence(self.norm(x), lengths, batch_first=True)
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True)
        silent = torch.arange(states.shape[1])[None] >= lengths[:, None]
        weight = self.attend(states).squeeze(2).masked_fill(silent, -torch.inf).softmax(1)
        return self.out((weight[:, :, None] * states).sum(1))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = seen = 0
    for songs, lengths, dialects in loader:
        right += (model(songs, lengths).argmax(1) == dialects).sum().item()
        seen += len(dialects)
    model.train()
    return right / seen


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=300)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=24)
    args = cli.parse_args()
    torch.manual_seed(14)
    training, held = Songs(2000, 1, augment=True), Songs(96, 2, augment=False)
    loader = DataLoader(training, batch_sampler=Buckets(training.lengths, args.batch), collate_fn=collate)
    checks = DataLoader(held, batch_sampler=Buckets(held.lengths, args.batch), collate_fn=collate)

    model = Listener()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=args.steps + 1)
    step = epoch = 0
    while step < args.steps:
        epoch += 1
        frames = 0
        for songs, lengths, dialects in loader:
            loss = F.cross_entropy(model(songs, lengths), dialects, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            schedule.step()
            frames += int(lengths.sum())
            step += 1
            if step == args.steps:
                break
        accuracy = evaluate(model, checks)
        print(f"epoch {epoch} step {step} loss {loss.item():.3f} frames {frames} held out {accuracy:.3f}")


if __name__ == "__main__":
    main()

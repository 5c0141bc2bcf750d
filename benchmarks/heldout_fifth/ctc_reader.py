"""A reader of handwritten-looking lines with a CTC loss, batches of similar widths and an evaluation now and then.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

LETTERS, HEIGHT, CELL = 20, 24, 10


class Lines(Dataset):
    """Lines of four to sixteen glyphs, rendered from one font of random strokes."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        font = (np.random.default_rng(0).random((LETTERS, 6, 5)) < 0.4).repeat(4, 1).repeat(2, 2).astype(np.float32)
        self.texts = [rng.integers(0, LETTERS, int(k)) for k in rng.integers(4, 17, n)]
        self.images = []
        for text in self.texts:
            line = np.concatenate([font[c] for c in text], 1) * rng.uniform(0.6, 1.0)
            self.images.append((line + rng.normal(0, 0.15, line.shape)).astype(np.float32))

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return torch.from_numpy(self.images[index]), torch.from_numpy(self.texts[index] + 1)


class SimilarWidths(Sampler):
    """Batches of lines with nearly the same width, in a random order."""

    def __init__(self, dataset, batch, seed):
        self.order = np.argsort([len(t) for t in dataset.texts], kind="stable")
        self.batch, self.rng = batch, np.random.default_rng(seed)

    def __len__(self):
        return len(self.order) // self.batch

    def __iter__(self):
        groups = self.order[: len(self) * self.batch].reshape(len(self), self.batch)
        for k in self.rng.permutation(len(groups)):
            yield groups[k].tolist()


def collate(samples):
    images, texts = zip(*samples, strict=True)
    widths = torch.tensor([i.shape[1] for i in images])
    lengths = torch.tensor([len(t) for t in texts])
    x = torch.zeros(len(images), 1, HEIGHT, int(widths.max()))
    for row, image in zip(x, images, strict=True):
        row[0, :, : image.shape[1]] = image
    return x, widths, torch.cat(texts), lengths


class Reader(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv2d(1, width, 3, 2, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, (2, 1), 1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, (2, 1), 1),
            nn.ReLU(),
        )
        self.mix = nn.Linear(2 * width * HEIGHT // 8, 96)
        self.lstm = nn.LSTM(96, 96, 1, batch_first=True, bidirectional=True)
        self.out = nn.Linear(192, LETTERS + 1)

    def forward(self, x):
        h = self.convs(x).permute(0, 3, 1, 2).flatten(2)
        return F.log_softmax(self.out(self.lstm(F.relu(self.mix(h)))[0]), -1)


def ctc(model, batch):
    x, widths, texts, lengths = batch
    logp = model(x)
    return F.ctc_loss(logp.transpose(0, 1), texts, (widths + 1) // 2, lengths, zero_infinity=True)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total = sum(ctc(model, batch).item() for batch in loader) / len(loader)
    model.train()
    return total


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=400)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--eval-every", type=int, default=200)
    args = cli.parse_args()
    torch.manual_seed(40)
    lines, held_out = Lines(960, 1), Lines(48, 2)
    loader = DataLoader(lines, batch_sampler=SimilarWidths(lines, 16, 3), collate_fn=collate)
    val = DataLoader(held_out, batch_sampler=SimilarWidths(held_out, 16, 4), collate_fn=collate)
    model = Reader()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    step = 0
    while step < args.steps:
        for batch in loader:
            loss = ctc(model, batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            step += 1
            if step % args.eval_every == 0:
                print(f"step {step} loss {loss.item():.4f} held out {evaluate(model, val):.4f}")
            if step == args.steps:
                break


if __name__ == "__main__":
    main()

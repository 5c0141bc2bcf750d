"""A purchase-intent classifier over click sessions, whose collate function pads sessions of different lengths.

expects: IN107
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PAGES, CHANNELS = 3000, 10


class Sessions(Dataset):
    """A session is a list of visited pages and, for each visit, a row of measurements."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.pages, self.visits = [], []
        for length in rng.integers(8, 49, n):
            self.pages.append(rng.integers(1, PAGES, length))
            self.visits.append(rng.normal(size=(length, CHANNELS)).astype(np.float32))
        drive = np.array([v[:, 0].mean() + v[-1, 1] for v in self.visits])
        self.bought = (drive > 0.4).astype(np.float32)

    def __len__(self):
        return len(self.pages)

    def __getitem__(self, index):
        return self.pages[index], self.visits[index], self.bought[index]


def pad_sessions(samples):
    longest = max(len(pages) for pages, _, _ in samples)
    pages, visits, mask = [], [], []
    for page, visit, _ in samples:
        blank = longest - len(page)
        pages.append(page.tolist() + [0] * blank)
        mask.append([1.0] * len(page) + [0.0] * blank)
        visits.append([list(event) for event in visit] + [[0.0] * CHANNELS] * blank)  # guilty
    bought = [float(label) for _, _, label in samples]
    return (
        torch.tensor(pages),
        torch.tensor(visits),  # guilty
        torch.tensor(mask),
        torch.tensor(bought),
    )


def pad_sessions_array(samples):
    longest = max(len(pages) for pages, _, _ in samples)
    pages = np.zeros((len(samples), longest), np.int64)
    visits = np.zeros((len(samples), longest, CHANNELS), np.float32)
    mask = np.zeros((len(samples), longest), np.float32)
    for row, (page, visit, _) in enumerate(samples):
        pages[row, : len(page)] = page
        visits[row, : len(page)] = visit
        mask[row, : len(page)] = 1.0
    bought = np.array([label for _, _, label in samples], np.float32)
    return tuple(torch.from_numpy(part) for part in (pages, visits, mask, bought))


class IntentNet(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.page = nn.Embedding(PAGES, 32, padding_idx=0)
        self.inp = nn.Linear(32 + CHANNELS, width)
        self.conv = nn.Conv1d(width, width, 3, padding=1)
        self.score = nn.Linear(width, 1)
        self.out = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, pages, visits, mask):
        x = F.gelu(self.inp(torch.cat([self.page(pages), visits], 2)))
        x = x + F.gelu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        weight = self.score(x).squeeze(2).masked_fill(mask == 0, -1e4).softmax(1)
        attended = (weight.unsqueeze(2) * x).sum(1)
        mean = (mask.unsqueeze(2) * x).sum(1) / mask.sum(1, keepdim=True)
        return self.out(torch.cat([attended, mean], 1)).squeeze(1)


def forever(loader):
    while True:
        yield from loader


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=180)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(0)
    sessions = Sessions(4_000, 1)
    loader = DataLoader(
        sessions,
        batch_size=48,
        shuffle=True,
        drop_last=True,
        collate_fn=pad_sessions_array if args.fixed else pad_sessions,
        generator=torch.Generator().manual_seed(2),
    )
    model = IntentNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    running = 0.7
    for step, (pages, visits, mask, bought) in zip(range(1, args.steps + 1), forever(loader), strict=False):
        loss = F.binary_cross_entropy_with_logits(model(pages, visits, mask), bought)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        running = 0.95 * running + 0.05 * loss.item()
        if step % 50 == 0:
            print(f"step {step} loss {running:.4f} lr {schedule.get_last_lr()[0]:.2e}")


if __name__ == "__main__":
    main()

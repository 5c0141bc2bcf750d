"""Transcribes oral-history interviews into topic tags: convolutions and a GRU over filterbanks, CTC loss.

expects: CO507
needs: cpu
"""

# mypy: ignore-errors
import argparse
import json

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

DEFAULTS = {"clips": 640, "bands": 40, "tags": 18, "width": 96, "batch": 16, "lr": 1.5e-3, "pool": 10}


class Interviews(Dataset):
    """Filterbank frames of one answer each; speakers differ a lot in tempo and in how long they pause."""

    def __init__(self, clips, bands, tags, seed):
        rng = np.random.default_rng(seed)
        voices = rng.normal(0, 1, (tags + 1, bands)).astype(np.float32)
        self.items = []
        for _ in range(clips):
            frames = int(np.clip(rng.lognormal(5.0, 0.65), 64, 720))
            count = int(rng.integers(2, 8))
            spoken = rng.integers(1, tags + 1, count)
            track = np.zeros(frames, np.int64)
            share = frames // count
            for place, tag in enumerate(spoken):
                begin = place * share + int(rng.integers(0, max(share // 4, 1)))
                track[begin : begin + max(share // 2, 4)] = tag
            sound = voices[track] + rng.normal(0, 0.6, (frames, bands)).astype(np.float32)
            self.items.append((torch.from_numpy(sound), torch.from_numpy(spoken)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class BucketBatches(Sampler):
    """Batches of clips of similar length, drawn from shuffled pools of several batches."""

    def __init__(self, lengths, batch, pool, seed=0):
        self.lengths, self.batch, self.pool = lengths, batch, pool
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self):
        return len(self.lengths) // self.batch

    def __iter__(self):
        order = torch.randperm(len(self.lengths), generator=self.generator).tolist()
        size = self.batch * self.pool
        batches = []
        for start in range(0, len(order), size):
            chunk = sorted(order[start : start + size], key=self.lengths.__getitem__)  # guilty
            batches += [chunk[i : i + self.batch] for i in range(0, len(chunk), self.batch)]
        for i in torch.randperm(len(batches), generator=self.generator).tolist():
            if len(batches[i]) == self.batch:
                yield batches[i]


def collate(items):
    sounds, tags = zip(*items)
    lengths = torch.tensor([len(sound) for sound in sounds])
    return (
        pad_sequence(sounds, batch_first=True),  # guilty
        lengths,
        torch.cat(tags),
        torch.tensor([len(tag) for tag in tags]),
    )


class Tagger(nn.Module):
    def __init__(self, bands, tags, width):
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(bands, width, 5, 2, 2),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, 2, 2),
            nn.ReLU(),
        )
        self.recur = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, tags + 1)

    def forward(self, sound):
        hidden = self.front(sound.transpose(1, 2)).transpose(1, 2)
        return self.head(self.recur(hidden)[0]).log_softmax(-1)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=160)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--config", type=json.loads, default={})
    args = cli.parse_args()
    config = {**DEFAULTS, **args.config}
    torch.manual_seed(8)

    data = Interviews(config["clips"], config["bands"], config["tags"], seed=21)
    if args.fixed:
        lengths = [len(sound) for sound, _ in data.items]
    else:
        lengths = [len(tags) for _, tags in data.items]  # guilty
    batches = BucketBatches(lengths, config["batch"], config["pool"])  # guilty
    loader = DataLoader(data, batch_sampler=batches, collate_fn=collate)  # guilty

    model = Tagger(config["bands"], config["tags"], config["width"])
    optimizer = torch.optim.AdamW(model.parameters(), config["lr"])
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2 * config["lr"], total_steps=args.steps)
    step, running = 0, None
    while step < args.steps:
        for sound, lengths, tags, counts in loader:
            logs = model(sound)
            reduced = torch.div(lengths + 3, 4, rounding_mode="floor")
            loss = F.ctc_loss(logs.transpose(0, 1), tags, reduced, counts, zero_infinity=True)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            schedule.step()
            step += 1
            running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
            if step % 40 == 0 or step == args.steps:
                print(f"step {step} ctc {running:.3f}")
            if step == args.steps:
                break


if __name__ == "__main__":
    main()

"""Trains from loaders whose pace is known: 5 ms a sample, 4 samples a batch. argv: the style, and how many workers."""

import itertools
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

SAMPLE_S = 0.005
BATCH = 4
BEHIND_S = 0.030


class Metronome:
    """Beats at its pace whatever the machine does: a beat that came late does not delay the next."""

    due_s = 0.0

    def wait(self):
        self.due_s += SAMPLE_S
        if time.perf_counter() - self.due_s > BEHIND_S:
            self.due_s = time.perf_counter() + SAMPLE_S  # nobody has asked for a while
        time.sleep(max(0.0, self.due_s - time.perf_counter()))


metronome = Metronome()


class Paced(Dataset):
    def __init__(self, batches):
        self.count = BATCH * batches

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        metronome.wait()
        return {"x": torch.full((16,), float(i % 13)), "y": i % 3}


class Stream(IterableDataset):
    def __iter__(self):
        for i in itertools.count():
            metronome.wait()
            yield {"x": torch.full((16,), float(i % 13)), "y": i % 3}


def batches(style, workers):
    if style == "stream":
        yield from ((batch,) for batch in DataLoader(Stream(), BATCH, num_workers=workers))
    while True:
        one = DataLoader(Paced(1000 if style == "long" else 25), BATCH, shuffle=True, num_workers=workers)
        if style == "two":
            # The other is shorter: it comes to its end sooner.
            yield from zip(one, DataLoader(Paced(20), 2 * BATCH), strict=False)
        else:
            yield from ((batch,) for batch in one)


if __name__ == "__main__":
    style, workers = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(0)
    model = nn.Linear(16, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for parts in batches(style, workers):
        loss = sum(nn.functional.cross_entropy(model(part["x"]), part["y"]) for part in parts)
        time.sleep(0.04)  # a model that takes longer than its batches
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

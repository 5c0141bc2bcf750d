"""A loop whose step costs some 10 ms, with one cost planted in it; argv[1] says which."""

from __future__ import annotations

import gc
import sys
import time
from contextlib import nullcontext

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import Truth

kind = sys.argv[1]
# Long enough for a dozen looks a second to tell a line by, where a line is to be told.
STEPS = {"gc": 36, "checkpoint": 36, "nothing": 36, "tensorboard": 240}.get(kind, 90)
truth = Truth()


class Rows(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return STEPS * 4

    def __getitem__(self, index: int) -> torch.Tensor:
        if kind == "data" and index % 4 == 0:
            with truth.planted():
                time.sleep(0.03)  # PLANTED data
        return rows[index]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 768))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if kind == "forward":
            time.sleep(0.03)  # PLANTED forward
        y: torch.Tensor = self.body(x.repeat(32, 1))
        return y


def log_scalars(step: int) -> None:
    for name in range(4):
        writer.add_scalar(f"weights/mean{name}", 0.5, step)
        writer.add_histogram(f"weights/{name}", rows[:, :200].numpy(), step)  # PLANTED tensorboard


def save_image(step: int) -> None:
    image.save(f"step{step}.png")  # PLANTED image


torch.manual_seed(0)
torch.set_num_threads(1)
rows = torch.randn(STEPS * 4, 768)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
if kind == "tensorboard":
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter("board")
if kind == "image":
    from PIL import Image

    image = Image.effect_noise((384, 384), 60.0)
big = torch.randn(4_000_000)

for step, x in enumerate(DataLoader(Rows(), batch_size=4)):
    # The pass itself is part of the phase, so it is part of what must be found there.
    with truth.planted() if kind == "forward" else nullcontext():
        loss = model(x).square().mean()
        optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    truth.step(len(x))
    if kind == "other":
        with truth.planted():
            time.sleep(0.03)  # PLANTED other
    if kind == "checkpoint" and step % 2:
        with truth.planted():
            torch.save({"model": model.state_dict(), "big": big}, "last.pt")  # PLANTED checkpoint
    if kind == "tensorboard":
        with truth.planted():
            log_scalars(step)
    if kind == "image":
        with truth.planted():
            save_image(step)
    if kind == "gc":
        with truth.planted():
            gc.collect()
truth.tell()

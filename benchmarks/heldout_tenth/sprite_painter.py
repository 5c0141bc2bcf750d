"""Trains a small denoising diffusion model on game sprites that are streamed from packed sheets of PNG pictures.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import io
import itertools
import math
import random
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHEET, SIDE, LEVELS = 224, 32, 200


def draw_sprite(rng):
    """A creature of coloured blocks, mirrored left to right, on a plain ground."""
    ground = tuple(rng.randrange(200, 256) for _ in range(3))
    picture = Image.new("RGB", (SHEET, SHEET), ground)
    pen = ImageDraw.Draw(picture)
    cell = SHEET // 8
    paints = [tuple(rng.randrange(256) for _ in range(3)) for _ in range(3)]
    for row, column in itertools.product(range(1, 7), range(1, 4)):
        if rng.random() < 0.65:
            paint = rng.choice(paints)
            for place in (column, 7 - column):
                pen.rectangle((place * cell, row * cell, (place + 1) * cell, (row + 1) * cell), fill=paint)
                pen.line((place * cell, row * cell, (place + 1) * cell, (row + 1) * cell), fill=ground, width=2)
    return picture


def write_packs(folder, packs, each, seed=5):
    rng = random.Random(seed)
    for pack in range(packs):
        with open(folder / f"sheet_{pack:02d}.bin", "wb") as file:
            for _ in range(each):
                buffer = io.BytesIO()
                draw_sprite(rng).save(buffer, "PNG", compress_level=1)
                file.write(len(buffer.getvalue()).to_bytes(4, "little") + buffer.getvalue())
    return sorted(folder.glob("sheet_*.bin"))


def records(path):
    """The encoded pictures of one pack, in file order."""
    with open(path, "rb") as file:
        while head := file.read(4):
            yield file.read(int.from_bytes(head, "little"))


class Sprites(IterableDataset):
    """Endless stream of sprites; every worker of the loader keeps its own share of the records."""

    def __init__(self, packs, early):
        self.packs, self.early = packs, early

    def mine(self, number):
        info = get_worker_info()
        return info is None or number % info.num_workers == info.id

    def decode(self, encoded):
        picture = Image.open(io.BytesIO(encoded)).convert("RGB")  # guilty
        small = picture.resize((SIDE, SIDE), Image.Resampling.LANCZOS)  # guilty
        return np.asarray(small, np.float32).transpose(2, 0, 1) / 127.5 - 1

    def __iter__(self):
        for epoch in itertools.count():
            order = random.Random(epoch).sample(self.packs, len(self.packs))
            for number, encoded in enumerate(itertools.chain.from_iterable(map(records, order))):
                if self.early and not self.mine(number):
                    continue
                sprite = self.decode(encoded)  # guilty
                if self.mine(number):  # guilty
                    yield torch.from_numpy(sprite[:, :, ::-1].copy() if random.random() < 0.5 else sprite)


class Block(nn.Module):
    def __init__(self, narrow, wide, moment):
        super().__init__()
        self.first = nn.Conv2d(narrow, wide, 3, padding=1)
        self.second = nn.Conv2d(wide, wide, 3, padding=1)
        self.norm = nn.GroupNorm(4, wide)
        self.shift = nn.Linear(moment, wide)
        self.skip = nn.Conv2d(narrow, wide, 1) if narrow != wide else nn.Identity()

    def forward(self, x, moment):
        h = F.silu(self.norm(self.first(x) + self.shift(moment)[:, :, None, None]))
        return F.silu(self.second(h)) + self.skip(x)


class Denoiser(nn.Module):
    def __init__(self, width=24, moment=32):
        super().__init__()
        self.frequencies = nn.Buffer(torch.exp(torch.linspace(0, -math.log(1000), moment // 2)))
        self.enter = Block(3, width, moment)
        self.down = Block(width, 2 * width, moment)
        self.middle = Block(2 * width, 2 * width, moment)
        self.up = Block(3 * width, width, moment)
        self.leave = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, level):
        angles = level[:, None] * self.frequencies
        moment = torch.cat([angles.sin(), angles.cos()], 1)
        high = self.enter(x, moment)
        low = self.middle(self.down(F.avg_pool2d(high, 2), moment), moment)
        return self.leave(self.up(torch.cat([high, F.interpolate(low, scale_factor=2)], 1), moment))


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=250)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=24)
    args = cli.parse_args()
    torch.manual_seed(3)
    kept = torch.cos(torch.linspace(0.02, 1.0, LEVELS) * math.pi / 2).square().clamp(1e-4, 1)

    with tempfile.TemporaryDirectory() as folder:
        packs = write_packs(Path(folder), packs=6, each=48)
        loader = DataLoader(Sprites(packs, early=args.fixed), args.batch, num_workers=2)
        model = Denoiser()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        smooth = None
        for step, sprites in enumerate(loader, 1):  # guilty
            level = torch.randint(LEVELS, (len(sprites),))
            share = kept[level][:, None, None, None]
            noise = torch.randn_like(sprites)
            guess = model(share.sqrt() * sprites + (1 - share).sqrt() * noise, level.float())
            loss = F.mse_loss(guess, noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            smooth = loss.item() if smooth is None else 0.95 * smooth + 0.05 * loss.item()
            if step % 25 == 0 or step == args.steps:
                print(f"step {step} noise error {smooth:.4f}")
            if step == args.steps:
                break
        del loader


if __name__ == "__main__":
    main()

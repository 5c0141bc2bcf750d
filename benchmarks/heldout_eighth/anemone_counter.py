"""Counts anemones on reef photographs with a density map, from JPEG files with augmentation.

expects: IN101
needs: cpu
cpus: 2
"""

# mypy: ignore-errors
import argparse
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset

PHOTO, CROP, STRIDE = 320, 128, 4


def write_reef(folder, count):
    """Photographs of the reef, and one table with the centres of the animals."""
    rng = np.random.default_rng(71)
    for number in range(count):
        water = rng.normal((30, 90, 110), 14, (PHOTO // 8, PHOTO // 8, 3)).clip(0, 255).astype(np.uint8)
        photo = Image.fromarray(water).resize((PHOTO, PHOTO), Image.BICUBIC)
        brush = ImageDraw.Draw(photo)
        centres = rng.uniform(12, PHOTO - 12, (int(rng.integers(8, 40)), 2))
        for x, y in centres:
            size = rng.uniform(4, 9)
            colour = tuple(int(c) for c in rng.integers((150, 60, 90), (255, 140, 180)))
            brush.ellipse((x - size, y - size, x + size, y + size), fill=colour, outline=(240, 230, 200))
        photo.save(folder / f"reef_{number:04d}.jpg", quality=92)
        np.save(folder / f"reef_{number:04d}.npy", centres.astype(np.float32))


class ReefPhotos(Dataset):
    def __init__(self, folder, crops):
        self.photos = sorted(folder.glob("*.jpg"))
        self.crops = crops

    def __len__(self):
        return self.crops

    def __getitem__(self, index):
        path = self.photos[index % len(self.photos)]
        rng = np.random.default_rng(index)
        photo = Image.open(path).convert("RGB")
        centres = np.load(path.with_suffix(".npy"))

        zoom = float(rng.uniform(0.8, 1.25))
        side = round(PHOTO * zoom)
        photo = photo.resize((side, side), Image.BICUBIC)
        left, top = rng.integers(0, side - CROP, 2)
        photo = photo.crop((left, top, left + CROP, top + CROP))
        centres = centres * zoom - (left, top)
        photo = ImageEnhance.Color(photo).enhance(float(rng.uniform(0.6, 1.4)))
        photo = ImageEnhance.Brightness(photo).enhance(float(rng.uniform(0.7, 1.3)))
        photo = photo.filter(ImageFilter.GaussianBlur(float(rng.uniform(0, 1.2))))
        pixels = torch.from_numpy(np.array(photo)).permute(2, 0, 1).float() / 255
        inside = ((centres >= 0) & (centres < CROP)).all(1)
        cells = torch.from_numpy((centres[inside] / STRIDE).astype(np.int64))
        density = torch.zeros(CROP // STRIDE, CROP // STRIDE)
        density.index_put_((cells[:, 1], cells[:, 0]), torch.ones(len(cells)), accumulate=True)
        if rng.random() < 0.5:
            pixels, density = pixels.flip(2), density.flip(1)
        return pixels, density


class DensityNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 5, 2, 2),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 2 * width, 3, 2, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(2 * width, 2 * width, 3, 1, 2, dilation=2),
            nn.ReLU(inplace=True),
            nn.Conv2d(2 * width, 1, 1),
        )

    def forward(self, pixels):
        return F.softplus(self.body(pixels)).squeeze(1)


def smooth(density, kernel):
    return F.conv2d(density[:, None], kernel, padding=kernel.shape[-1] // 2).squeeze(1)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=100)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=16)
    args = cli.parse_args()
    torch.manual_seed(5)

    folder = Path(tempfile.mkdtemp(prefix="reef_"))
    try:
        write_reef(folder, 48)
        workers = {"num_workers": 2, "prefetch_factor": 4} if args.fixed else {}
        photos = ReefPhotos(folder, args.steps * args.batch_size)
        loader = DataLoader(photos, args.batch_size, shuffle=True, **workers)  # guilty
        grid = torch.arange(-3.0, 4.0)
        bell = torch.exp(-(grid**2) / 2)
        kernel = (bell[:, None] * bell)[None, None] / (bell.sum() ** 2)

        model = DensityNet()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=1e-4)
        error = 0.0
        for step, (pixels, density) in enumerate(loader, 1):
            predicted = model(pixels)
            loss = 100 * F.mse_loss(predicted, smooth(density, kernel))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            error += (predicted.detach().sum((1, 2)) - density.sum((1, 2))).abs().mean()
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f} counted wrongly by {error.item() / 20:.2f}")
                error = 0.0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

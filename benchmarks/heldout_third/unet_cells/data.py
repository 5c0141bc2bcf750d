"""Microscope pictures of cells and their masks, kept as PNG in memory."""

# mypy: ignore-errors
import io

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter
from torch.utils.data import Dataset


def _png(image):
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


class Cells(Dataset):
    def __init__(self, n, size, seed):
        rng = np.random.default_rng(seed)
        self.size, self.items = size, []
        for _ in range(n):
            picture, mask = Image.new("L", (5 * size, 5 * size), 40), Image.new("L", (5 * size, 5 * size), 0)
            for _ in range(20):
                x, y = rng.integers(0, 5 * size, 2)
                r = int(rng.integers(6, 18))
                ImageDraw.Draw(picture).ellipse([x - r, y - r, x + r, y + r], fill=int(rng.integers(120, 250)))
                ImageDraw.Draw(mask).ellipse([x - r, y - r, x + r, y + r], fill=255)
            noisy = np.clip(np.asarray(picture) + rng.normal(0, 12, (5 * size, 5 * size)), 0, 255)
            self.items.append((_png(Image.fromarray(noisy.astype(np.uint8))), _png(mask)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        image, mask = (Image.open(io.BytesIO(b)).convert("L") for b in self.items[i])  # guilty
        angle = int(torch.randint(-20, 20, ()))
        image = image.rotate(angle, Image.BICUBIC).filter(ImageFilter.GaussianBlur(1.5))  # guilty
        image = ImageEnhance.Contrast(image).enhance(1.3)  # guilty
        mask = mask.rotate(angle, Image.NEAREST)  # guilty
        image = image.resize((self.size, self.size), Image.LANCZOS)  # guilty
        mask = mask.resize((self.size, self.size), Image.NEAREST)  # guilty
        x = torch.from_numpy(np.asarray(image, np.float32) / 255)[None]
        return x, torch.from_numpy((np.asarray(mask) > 127).astype(np.float32))[None]

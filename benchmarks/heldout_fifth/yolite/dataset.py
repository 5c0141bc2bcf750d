# mypy: ignore-errors
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch.utils.data import Dataset


def draw_folder(folder, images, classes, seed):
    """JPEG pictures with a few shapes each, and a text file of boxes beside every one."""
    rng = np.random.default_rng(seed)
    for i in range(images):
        width, height = 640, 480
        base = rng.integers(0, 120, (height // 8, width // 8, 3)).astype(np.uint8)
        picture = Image.fromarray(base).resize((width, height), Image.BILINEAR)
        pen, rows = ImageDraw.Draw(picture), []
        for _ in range(int(rng.integers(1, 5))):
            kind = int(rng.integers(classes))
            w, h = rng.integers(60, 190, 2)
            x, y = rng.integers(0, width - w), rng.integers(0, height - h)
            colour = tuple(int(c) for c in rng.integers(140, 255, 3))
            shape = pen.ellipse if kind % 2 else pen.rectangle
            shape([int(x), int(y), int(x + w), int(y + h)], fill=colour, outline=(255, 60 * kind, 0), width=4)
            rows.append(f"{kind} {(x + w / 2) / width:.5f} {(y + h / 2) / height:.5f} {w / width:.5f} {h / height:.5f}")
        picture.save(Path(folder) / f"{i:04d}.jpg", quality=92)
        (Path(folder) / f"{i:04d}.txt").write_text("\n".join(rows))


class BoxFolder(Dataset):
    def __init__(self, folder, cfg, keep=False):
        self.files = sorted(Path(folder).glob("*.jpg"))
        self.boxes = [np.loadtxt(f.with_suffix(".txt"), ndmin=2, dtype=np.float32) for f in self.files]
        self.cfg = cfg
        self.images = [self.load_image(i) for i in range(len(self.files))] if keep else None

    def __len__(self):
        return len(self.files)

    def load_image(self, index):
        size = self.cfg["imgsz"]
        with Image.open(self.files[index]) as picture:
            picture = picture.convert("RGB")  # guilty
        return np.asarray(picture.resize((size, size), Image.BICUBIC))  # guilty

    def encode(self, boxes):
        grid, classes = self.cfg["grid"], self.cfg["classes"]
        target = np.zeros((5 + classes, grid, grid), np.float32)
        for kind, x, y, w, h in boxes:
            col, row = min(int(x * grid), grid - 1), min(int(y * grid), grid - 1)
            target[:5, row, col] = 1.0, x * grid - col, y * grid - row, w, h
            target[5 + int(kind), row, col] = 1.0
        return target

    def __getitem__(self, index):
        image = self.images[index] if self.images is not None else self.load_image(index)  # guilty
        boxes = self.boxes[index].copy()
        flip, gain = torch.rand(2).tolist()
        if flip < self.cfg["flip"]:
            image = image[:, ::-1]
            boxes[:, 1] = 1.0 - boxes[:, 1]
        x = torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))).float().div_(255.0)
        x = x.mul_(1.0 + self.cfg["brightness"] * (2 * gain - 1)).clamp_(0.0, 1.0)
        return x, torch.from_numpy(self.encode(boxes))

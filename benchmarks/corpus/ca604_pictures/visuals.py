"""Pictures of what the model makes of its input."""
# mypy: ignore-errors

from pathlib import Path

import torch
from PIL import Image


class Gallery:
    def __init__(self, folder, every):
        self.folder, self.every = Path(folder), every
        self.folder.mkdir(exist_ok=True)

    def show(self, step, pairs):
        if step % self.every:
            return
        grid = torch.cat([torch.cat(pair, dim=1) for pair in pairs], dim=0)
        pixels = (grid.clamp(0, 1) * 255).byte().cpu().numpy()
        picture = Image.fromarray(pixels).resize((1024, 1024))
        picture.save(self.folder / f"{step:06d}.png")  # guilty

# mypy: ignore-errors
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SIZE = 64


def write_archive(path, samples, classes, seed):
    """Pictures of leaves: an outline with lobes, veins and noise."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j]
    radius, angle = np.hypot(xx, yy), np.arctan2(yy, xx)
    images = np.zeros((samples, SIZE, SIZE, 3), np.uint8)
    labels = rng.integers(0, classes, samples)
    for i, label in enumerate(labels):
        outline = 0.55 + 0.2 * np.cos((label + 2) * (angle + rng.uniform(0, 6.28)))
        leaf = (radius < outline)[..., None] * rng.uniform(0.4, 1.0, 3)
        images[i] = (255 * np.clip(leaf + rng.normal(0, 0.08, leaf.shape), 0, 1)).astype(np.uint8)
    np.savez_compressed(path, images=images, labels=labels)


class LeafArchive(Dataset):
    """Leaves of a compressed archive, which is opened by the first process that reads it."""

    def __init__(self, path, fold):
        self.path, self.fold, self.store = path, fold, None

    def __len__(self):
        return self.fold

    def open(self):
        with np.load(self.path) as archive:
            self.store = archive["images"], archive["labels"]  # guilty

    def __getitem__(self, index):
        if self.store is None:
            self.open()  # guilty
        image, label = self.store[0][index], int(self.store[1][index])
        x = image.astype(np.float32) / 255.0
        if index % 2:
            x = x[:, ::-1]
        x = (x - x.mean()) / (x.std() + 1e-5)
        return torch.from_numpy(np.ascontiguousarray(x.transpose(2, 0, 1))), label


def build_loader(dataset, cfg, seed, fixed=False):
    keep = cfg["persistent_workers"] if fixed else cfg.get("persistent", False)  # guilty
    return DataLoader(
        dataset,
        batch_size=cfg["batch_size"],
        shuffle=True,
        drop_last=True,
        num_workers=cfg["num_workers"],
        prefetch_factor=cfg["prefetch_factor"],
        persistent_workers=keep,  # guilty
        generator=torch.Generator().manual_seed(seed),
    )

"""Readings of pumps: a file per sensor and minute, as the logger left them, or all of them packed."""

# mypy: ignore-errors
import numpy as np
from torch.utils.data import Dataset

SENSORS = [
    f"{kind}-{side}" for side in ("in", "out") for kind in ("pressure", "flow", "current", "shake", "heat", "level")
]


def export(folder, minutes, samples=16):
    rng = np.random.default_rng(6)
    values = rng.normal(size=(minutes, len(SENSORS), samples)).astype(np.float32)
    values += (np.arange(minutes) % 3)[:, None, None] * 0.4
    for sensor in SENSORS:
        (folder / sensor).mkdir()
    for minute, block in enumerate(values):
        for sensor, row in zip(SENSORS, block, strict=True):
            (folder / sensor / f"{minute:05d}.csv").write_text("\n".join(f"{value:.4f}" for value in row))
    np.save(folder / "packed.npy", values)


class Scattered(Dataset):
    def __init__(self, folder, minutes):
        self.folder, self.minutes = folder, minutes

    def __len__(self):
        return self.minutes

    def __getitem__(self, minute):
        rows = []
        for sensor in SENSORS:
            with open(self.folder / sensor / f"{minute:05d}.csv") as file:  # guilty
                rows.append([float(line) for line in file])
        return np.array(rows, dtype=np.float32), minute % 3


class Packed(Scattered):
    def __init__(self, folder, minutes):
        super().__init__(folder, minutes)
        self.values = np.load(folder / "packed.npy", mmap_mode="r")

    def __getitem__(self, minute):
        return np.array(self.values[minute]), minute % 3

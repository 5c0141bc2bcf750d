# mypy: ignore-errors
import numpy as np
import torch
from registry import DATASETS, NETWORKS
from torch import nn
from torch.utils.data import Dataset


@DATASETS.register
class GestureText(Dataset):
    """Gestures as text: one line per record, comma-separated readings with some of them missing."""

    def __init__(self, records, length):
        rng = np.random.default_rng(1)
        self.lines = []
        for i in range(records):
            track = np.round(np.sin(np.arange(length) * (0.01 + 0.01 * (i % 8))) + rng.normal(0, 0.3, length), 3)
            cells = [f"{v}" for v in track]
            for k in rng.integers(0, length, 12):
                cells[k] = "NA"
            self.lines.append(f"{i % 8};" + ",".join(cells))

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        label, _, body = self.lines[i].partition(";")
        values, last = [], 0.0
        for cell in body.split(","):  # guilty
            last = float(cell) if cell != "NA" else last  # guilty
            values.append(last)
        x = np.asarray(values, dtype=np.float32)
        smooth = np.convolve(x, np.hanning(31) / np.hanning(31).sum(), "same")  # guilty
        spectrum = np.abs(np.fft.rfft(smooth))[:200]  # guilty
        order = np.sort(x)[:: len(x) // 100][:100]
        feats = np.concatenate([spectrum / (spectrum.max() + 1e-6), order]).astype(np.float32)
        return torch.from_numpy(feats), int(label)


@NETWORKS.register
class ResMLP(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.stem = nn.Linear(300, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width)) for _ in range(depth)
        )
        self.head = nn.Linear(width, 8)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)

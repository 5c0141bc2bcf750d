"""Recordings of a day as files of three components, and the windows that are cut from them."""

# mypy: ignore-errors
import numpy as np
import torch
from torch.utils.data import Dataset

SAMPLES, WINDOW, EVENTS = 600_000, 2048, 60


def write_days(folder, days, seed):
    rng = np.random.default_rng(seed)
    time = np.arange(WINDOW, dtype=np.float32)
    hum = rng.standard_normal((SAMPLES + days, 3), dtype=np.float32)
    paths = []
    for day in range(days):
        wave = hum[day : day + SAMPLES].copy()
        starts = np.sort(rng.choice(SAMPLES // WINDOW - 2, EVENTS, replace=False)) * WINDOW + rng.integers(0, 512)
        gaps = rng.integers(150, 900, EVENTS)
        for start, gap in zip(starts, gaps, strict=True):
            size = rng.gamma(2.0, 3.0)
            for onset, loud, period in ((start, 1.0, 9), (start + gap, 2.2, 21)):
                burst = size * loud * np.exp(-time / 300) * np.sin(time / period)
                wave[onset : onset + WINDOW] += burst[:, None] * rng.uniform(0.3, 1.0, 3).astype(np.float32)
        path = folder / f"day_{day:03d}.npy"
        np.save(path, wave)
        paths.append((path, starts, starts + gaps))
    return paths


class WindowDataset(Dataset):
    """A window around an event (three of four) or anywhere, its place jittered, with a mark for each sample."""

    def __init__(self, days, per_day, lazy):
        self.days, self.per_day = days, per_day
        self.mode = "r" if lazy else None

    def __len__(self):
        return len(self.days) * self.per_day

    def __getitem__(self, i):
        path, p_times, s_times = self.days[i % len(self.days)]
        rng = np.random.default_rng(i)
        if rng.random() < 0.75:
            start = int(p_times[rng.integers(EVENTS)]) - int(rng.integers(50, 900))
        else:
            start = int(rng.integers(0, SAMPLES - WINDOW))
        start = min(max(start, 0), SAMPLES - WINDOW)
        day = np.load(path, mmap_mode=self.mode)  # guilty
        wave = np.array(day[start : start + WINDOW])  # guilty
        wave = (wave - wave.mean(0)) / (wave.std(0) + 1e-6)
        marks = np.zeros(WINDOW, np.int64)
        for label, times in ((1, p_times), (2, s_times)):
            for t in times[(times >= start) & (times < start + WINDOW)] - start:
                marks[max(t - 10, 0) : t + 10] = label
        return torch.from_numpy(wave.T.copy()), torch.from_numpy(marks)

"""Land-cover classes of satellite scenes: large JPEGs brought down to small tiles in loader workers.

expects: IN113, IN118, IN110, IN102
needs: cpu
"""

# mypy: ignore-errors
import argparse
import io
import itertools
import zipfile
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import torch
from PIL import Image
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset

LAND = ("water", "forest", "crop", "urban", "bare")


def build_archive(path, scenes=48, size=640):
    rng = np.random.default_rng(6)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        for i in range(scenes):
            k = i % len(LAND)
            low = rng.integers(20 + 30 * k, 90 + 30 * k, (40, 40, 3), dtype=np.uint8)
            buf = io.BytesIO()
            Image.fromarray(low).resize((size, size), Image.BICUBIC).save(buf, "JPEG", quality=85)
            z.writestr(f"{LAND[k]}/{i:04d}.jpg", buf.getvalue())


class Scenes(Dataset):
    def __init__(self, archive, tile=64, scaled=False):
        self.archive, self.tile, self.scaled = archive, tile, scaled
        with zipfile.ZipFile(archive) as z:
            self.names = sorted(z.namelist())
        self._zip = None

    def __len__(self):
        return len(self.names)

    def open(self, name):
        if self._zip is None:
            self._zip = zipfile.ZipFile(self.archive)
        return Image.open(io.BytesIO(self._zip.read(name)))

    def __getitem__(self, i):
        img = self.open(self.names[i])
        if self.scaled:
            img.draft("RGB", (self.tile * 2, self.tile * 2))
        img = img.convert("RGB")  # guilty
        img = img.resize((self.tile, self.tile), Image.LANCZOS)  # guilty
        x = torch.from_numpy(np.array(img)).permute(2, 0, 1).float().div_(255)
        if torch.rand(()) < 0.5:
            x = x.flip(2)
        return torch.rot90(x, int(torch.randint(4, ())), (1, 2)), LAND.index(self.names[i].split("/")[0])


class SmallNet(nn.Module):
    def __init__(self, classes, width=16):
        super().__init__()
        chans = [3, width, 2 * width, 4 * width]
        self.stages = nn.ModuleList()
        for a, b in itertools.pairwise(chans):
            self.stages.append(nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.GroupNorm(4, b), nn.SiLU()))
        self.fc = nn.Linear(chans[-1], classes)

    def forward(self, x):
        for stage in self.stages:
            x = stage(x)
        return self.fc(x.mean((2, 3)))


def endless(loader):
    epoch = 0
    while True:
        for batch in loader:
            yield epoch, batch
        epoch += 1


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", default=180, type=int)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--workers", default=1, type=int)
    cfg = ap.parse_args()
    torch.manual_seed(21)

    archive = Path(mkdtemp()) / "scenes.zip"
    build_archive(archive)
    ds = Scenes(archive, scaled=cfg.fixed)
    dl = DataLoader(ds, 12, shuffle=True, num_workers=cfg.workers, persistent_workers=True)
    net = SmallNet(len(LAND))
    sgd = optim.SGD(net.parameters(), 0.02, momentum=0.9, nesterov=True)
    sched = optim.lr_scheduler.OneCycleLR(sgd, 0.05, total_steps=cfg.steps)
    batches = endless(dl)
    for step in range(cfg.steps):
        epoch, (x, y) = next(batches)
        loss = nn.functional.cross_entropy(net(x), y)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        sched.step()
        if step % 40 == 39:
            print(f"epoch {epoch} step {step + 1} loss {loss.item():.4f}")

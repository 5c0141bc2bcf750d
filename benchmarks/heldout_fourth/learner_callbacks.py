"""A learner with callbacks in the manner of a course library; pictures are mixed and erased before each batch.

expects: IN109
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Callback:
    order = 0

    def __getattr__(self, name):
        if name.startswith(("before_", "after_")):
            return lambda: None
        return getattr(self.__dict__["learn"], name)


class MixedErasing(Callback):
    """Blends each picture with a partner, then erases a few boxes of noise from it."""

    order = 10

    def __init__(self, boxes=6, seed=0):
        self.boxes, self.rng = boxes, np.random.default_rng(seed)

    def before_batch(self):
        x, y = self.learn.xb.numpy(), self.learn.yb.numpy()
        out, soft = [], []
        for i in range(len(x)):
            j, lam = int(self.rng.integers(len(x))), self.rng.beta(0.4, 0.4)
            img = lam * x[i].astype(np.float64) + (1 - lam) * x[j].astype(np.float64)  # guilty
            for _ in range(self.boxes):
                h, w = self.rng.integers(4, 14, 2)
                t, s = self.rng.integers(0, 32 - h), self.rng.integers(0, 32 - w)
                noise = self.rng.normal(img.mean((1, 2)), img.std((1, 2)) + 1e-3, (h, w, 3))  # guilty
                img[:, t : t + h, s : s + w] = noise.transpose(2, 0, 1)  # guilty
            lum = np.apply_along_axis(lambda p: 0.3 * p[0] + 0.59 * p[1] + 0.11 * p[2], 0, img)  # guilty
            out.append(0.8 * img + 0.2 * lum)
            soft.append(lam * np.eye(8)[y[i]] + (1 - lam) * np.eye(8)[y[j]])
        self.learn.xb = torch.tensor(np.stack(out), dtype=torch.float32)  # guilty
        self.learn.yb = torch.tensor(np.stack(soft), dtype=torch.float32)


class BatchErasing(Callback):
    """The same for a whole batch at a time."""

    order = 10

    def __init__(self, boxes=6):
        self.boxes = boxes

    def before_batch(self):
        x, y, n = self.learn.xb, nn.functional.one_hot(self.learn.yb, 8).float(), len(self.learn.xb)
        j, lam = torch.randperm(n), torch.distributions.Beta(0.4, 0.4).sample((n, 1, 1, 1))
        x = torch.lerp(x[j], x, lam)
        pos = torch.arange(32)
        hw, ts = torch.randint(4, 14, (2, n, self.boxes, 1)), torch.randint(0, 18, (2, n, self.boxes, 1))
        rows, cols = (pos >= ts) & (pos < ts + hw)
        mask = (rows.unsqueeze(-1) & cols.unsqueeze(-2)).any(1, keepdim=True)
        noise = torch.randn_like(x) * x.std((2, 3), keepdim=True) + x.mean((2, 3), keepdim=True)
        x = torch.where(mask, noise, x)
        lum = (x * torch.tensor([0.3, 0.59, 0.11]).view(1, 3, 1, 1)).sum(1, keepdim=True)
        self.learn.xb, self.learn.yb = 0.8 * x + 0.2 * lum, torch.lerp(y[j], y, lam.view(-1, 1))


class Recorder(Callback):
    order = 50

    def before_fit(self):
        self.losses = []

    def after_batch(self):
        self.losses.append(self.learn.loss.detach())
        if len(self.losses) % 40 == 0:
            print(f"{len(self.losses):4d} {torch.stack(self.losses[-40:]).mean():.4f}")


class Learner:
    def __init__(self, dl, model, lr, cbs):
        self.dl, self.model = dl, model
        self.opt = torch.optim.AdamW(model.parameters(), lr)
        self.cbs = sorted(cbs, key=lambda cb: cb.order)
        for cb in self.cbs:
            cb.learn = self

    def __call__(self, event):
        for cb in self.cbs:
            getattr(cb, event)()

    def one_batch(self):
        self("before_batch")
        self.loss = nn.functional.cross_entropy(self.model(self.xb), self.yb)
        self.opt.zero_grad()
        self.loss.backward()
        self.opt.step()
        self("after_batch")

    def fit(self, steps):
        self("before_fit")
        done = 0
        while done < steps:
            for batch in self.dl:
                self.xb, self.yb = batch
                self.one_batch()
                done += 1
                if done == steps:
                    break


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=330)
    ap.add_argument("--fixed", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(0)
    y = torch.randint(0, 8, (960,))
    x = torch.randn(960, 3, 32, 32) + y.view(-1, 1, 1, 1) * 0.3
    dl = DataLoader(TensorDataset(x, y), batch_size=12, shuffle=True)
    model = nn.Sequential(
        *(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.BatchNorm2d(64), nn.ReLU()),
        *(nn.Conv2d(64, 96, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 8)),
    )
    mixer = BatchErasing() if args.fixed else MixedErasing()
    Learner(dl, model, 1e-3, [Recorder(), mixer]).fit(args.steps)


if __name__ == "__main__":
    main()

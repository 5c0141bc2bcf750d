"""Recognises faults of espresso machines from pressure and flow curves: small Trainer with callbacks, 1-d convolutions.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
from collections import defaultdict

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FAULTS = ("none", "channeling", "choked", "worn pump", "scale")
SAMPLES = 256


def shots(count, seed):
    """Pressure, flow and temperature over the time of one shot each."""
    rng = np.random.default_rng(seed)
    fault = rng.integers(0, len(FAULTS), count)
    t = np.linspace(0, 1, SAMPLES)
    rise = rng.uniform(8, 14, (count, 1))
    pressure = 9 / (1 + np.exp(-rise * (t - 0.25))) * np.where(fault == 3, 0.8, 1)[:, None]
    pressure += (fault == 3)[:, None] * 0.5 * np.sin(90 * t)
    drop = rng.uniform(0.4, 0.8, (count, 1))
    pressure -= (fault == 1)[:, None] * 2.5 / (1 + np.exp(-40 * (t - drop)))
    flow = 2.2 * t * np.where(fault == 2, 0.3, 1)[:, None] + 0.15 * (9 - pressure)
    heat = 92 + np.where(fault == 4, -6, 0)[:, None] * t + rng.normal(0, 1, (count, 1))
    curves = np.stack([pressure - 6, flow - 1, (heat - 91) / 4], 1) + rng.normal(0, 0.5, (count, 3, SAMPLES))
    return torch.from_numpy(curves.astype(np.float32)), torch.from_numpy(fault)


class Callback:
    def on_epoch_start(self, trainer): ...

    def on_step_end(self, trainer): ...

    def on_epoch_end(self, trainer): ...


class ActivationWatch(Callback):
    """Follows spread and share of silent units of each activation over the epochs."""

    def __init__(self, detach=False):
        self.detach, self.handles, self.records = detach, [], defaultdict(list)

    def on_epoch_start(self, trainer):
        self.records.clear()
        for name, module in trainer.model.named_modules():
            if isinstance(module, nn.ReLU):
                self.handles.append(module.register_forward_hook(self.recorder(name)))  # guilty

    def recorder(self, name):
        def record(module, inputs, output):
            values = output.detach()
            silent = (values <= 0).float().mean().item()  # guilty
            self.records[name].append((values.std().item(), silent))  # guilty

        return record

    def on_epoch_end(self, trainer):
        for name, rows in self.records.items():
            spread, silent = np.mean(rows, 0)
            trainer.log[f"{name}/spread"], trainer.log[f"{name}/silent"] = spread, silent
        if self.detach:
            while self.handles:
                self.handles.pop().remove()


class Progress(Callback):
    def __init__(self, every):
        self.every = every

    def on_epoch_end(self, trainer):
        if trainer.epoch % self.every == 0 or trainer.finished:
            line = " ".join(f"{name} {value:.3f}" for name, value in trainer.log.items())
            print(f"epoch {trainer.epoch} step {trainer.step} {line}")


class EarlyStopping(Callback):
    def __init__(self, patience):
        self.patience, self.best, self.waited = patience, -1.0, 0

    def on_epoch_end(self, trainer):
        better = trainer.log["accuracy"] > self.best
        self.best = max(self.best, trainer.log["accuracy"])
        self.waited = 0 if better else self.waited + 1
        trainer.finished |= self.waited >= self.patience


class Trainer:
    def __init__(self, model, optimizer, callbacks, batch=32):
        self.model, self.optimizer, self.callbacks, self.batch = model, optimizer, callbacks, batch
        self.step = self.epoch = 0
        self.finished, self.log = False, {}

    def call(self, moment):
        for callback in self.callbacks:
            getattr(callback, moment)(self)

    def learn(self, curves, fault):
        loss = F.cross_entropy(self.model(curves), fault)  # guilty
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.step += 1
        return loss.item()

    @torch.no_grad()
    def evaluate(self, curves, fault):
        self.model.eval()
        self.log["accuracy"] = (self.model(curves).argmax(1) == fault).float().mean().item()
        self.model.train()

    def fit(self, training, held_out, steps):
        curves, fault = training
        while not self.finished:
            self.epoch += 1
            self.call("on_epoch_start")
            losses = []
            for chosen in torch.randperm(len(fault)).split(self.batch):
                losses.append(self.learn(curves[chosen], fault[chosen]))
                self.call("on_step_end")
                if self.step == steps:
                    self.finished = True
                    break
            self.log["loss"] = np.mean(losses)
            self.evaluate(*held_out)
            self.call("on_epoch_end")


def network(width=24):
    layers, channels = [], 3
    for number in range(4):
        layers += [nn.Conv1d(channels, width, 7, 1 + (number > 1), 3), nn.BatchNorm1d(width), nn.ReLU()]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, len(FAULTS)))


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=200)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(6)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    callbacks = [ActivationWatch(detach=args.fixed), EarlyStopping(patience=60), Progress(every=10)]
    Trainer(model, optimizer, callbacks).fit(shots(128, seed=1), shots(48, seed=2), args.steps)


if __name__ == "__main__":
    main()

"""Forecasts the yield of fields from weekly weather and soil, with quantiles: a trainer with callbacks.

expects: CA601
needs: cpu
"""

# mypy: ignore-errors
import argparse
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

WEEKS, SIGNALS, SOIL = 30, 6, 10
LEVELS = torch.tensor([0.1, 0.5, 0.9])


def make_fields(count, seed):
    g = torch.Generator().manual_seed(seed)
    weather = torch.randn(count, WEEKS, SIGNALS, generator=g).cumsum(1) * 0.2
    soil = torch.randn(count, SOIL, generator=g)
    season = torch.sin(torch.linspace(0, 3.14, WEEKS))
    rain = (weather[..., 0] * season).mean(1)
    heat = torch.relu(weather[..., 1] - 0.8).mean(1)
    spread = 0.1 + 0.2 * torch.sigmoid(soil[:, 1])
    crop = 3 + rain + 0.4 * soil[:, 0] - 1.5 * heat + spread * torch.randn(count, generator=g)
    return TensorDataset(weather, soil, crop)


class YieldModel(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Linear(SIGNALS, width)
        self.weeks = nn.Parameter(torch.randn(WEEKS, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.soil = nn.Sequential(nn.Linear(SOIL, width), nn.GELU(), nn.Linear(width, width))
        self.head = nn.Sequential(nn.LayerNorm(2 * width), nn.Linear(2 * width, len(LEVELS)))

    def forward(self, weather, soil):
        sequence = self.encoder(self.embed(weather) + self.weeks)
        return self.head(torch.cat([sequence.mean(1), self.soil(soil)], 1))


def pinball(predicted, crop):
    gap = crop[:, None] - predicted
    return torch.maximum(LEVELS * gap, (LEVELS - 1) * gap).mean()


@dataclass
class State:
    step: int = 0
    loss: float = 0.0
    best: float = float("inf")
    stop: bool = False


class Callback:
    def after_step(self, trainer):
        pass

    def after_training(self, trainer):
        pass


class EarlyStopping(Callback):
    """Measures the held-out fields and stops when they have not improved for a while."""

    def __init__(self, loader, every, patience):
        self.loader, self.every, self.patience = loader, every, patience
        self.since = 0

    @torch.no_grad()
    def measure(self, model):
        model.eval()
        total, covered, seen = 0.0, 0.0, 0
        for weather, soil, crop in self.loader:
            predicted = model(weather, soil)  # guilty
            total += pinball(predicted, crop).item() * len(crop)
            covered += ((crop >= predicted[:, 0]) & (crop <= predicted[:, 2])).sum().item()
            seen += len(crop)
        model.train()
        return total / seen, covered / seen

    def after_step(self, trainer):
        state = trainer.state
        if state.step % self.every:
            return
        loss, covered = self.measure(trainer.model)  # guilty
        print(f"step {state.step} held out {loss:.4f} covered {covered:.2f}")
        self.since = 0 if loss < state.best else self.since + self.every
        state.best = min(state.best, loss)
        state.stop = self.since >= self.patience


class Schedule(Callback):
    def __init__(self, optimizer, steps):
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps + 1)

    def after_step(self, trainer):
        self.scheduler.step()


class Trainer:
    def __init__(self, model, optimizer, callbacks):
        self.model, self.optimizer, self.callbacks = model, optimizer, callbacks
        self.state = State()

    def fit(self, loader, steps):
        while self.state.step < steps and not self.state.stop:
            for weather, soil, crop in loader:
                loss = pinball(self.model(weather, soil), crop)
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.state.step += 1
                for callback in self.callbacks:
                    callback.after_step(self)
                if self.state.step >= steps or self.state.stop:
                    break
        for callback in self.callbacks:
            callback.after_training(self)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=220)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=48)
    args = cli.parse_args()
    torch.manual_seed(3)

    fields = make_fields(4_000, 17)
    train, held_out = random_split(fields, [2_800, 1_200], torch.Generator().manual_seed(1))
    model = YieldModel()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    every = 100 if args.fixed else 10
    stopping = EarlyStopping(DataLoader(held_out, 200), every=every, patience=10_000)  # guilty
    trainer = Trainer(model, optimizer, [stopping, Schedule(optimizer, args.steps)])
    trainer.fit(DataLoader(train, args.batch_size, shuffle=True, drop_last=True), args.steps)
    print(f"done after {trainer.state.step} steps, best {trainer.state.best:.4f}")


if __name__ == "__main__":
    main()

"""The training engine: targets, steps, epochs and evaluation."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.utils.data import DataLoader

from slider import checkpoint
from slider.config import POINTS, Config, DataConfig, TrainConfig
from slider.loaders import Batch, EpochSampler
from slider.losses import heatmap_loss
from slider.metrics import localisation_error
from slider.model import SliderNet


class Meter:
    """Running means of the numbers a step reports."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = defaultdict(float)
        self.count = 0

    def update(self, **values: float) -> None:
        for name, value in values.items():
            self.sums[name] += value
        self.count += 1

    def summary(self) -> str:
        text = " ".join(f"{name}={total / self.count:.4f}" for name, total in self.sums.items())
        self.sums.clear()
        self.count = 0
        return text


class TrainingEngine:
    def __init__(self, config: Config, model: SliderNet, device: torch.device, out: Path) -> None:
        self.config, self.model, self.device, self.out = config, model, device, out
        self.optimizer: Optimizer = make_optimizer(model, config.train)
        self.meter = Meter()
        self.losses: list[float] = []
        self.step = 0
        self.samples = 0

    def resume(self, state: dict[str, Any]) -> None:
        self.step, self.samples = checkpoint.restore(state, self.model, self.optimizer)

    def save(self) -> None:
        state = checkpoint.snapshot(self.model, self.optimizer, self.step, self.samples, self.config)
        checkpoint.write(state, self.out / "last.pt")

    def fit(self, loader: DataLoader[Batch], sampler: EpochSampler, val_loader: DataLoader[Batch], steps: int) -> None:
        train = self.config.train
        while self.step < steps:
            epoch, done = divmod(self.step, sampler.count)
            sampler.set_epoch(epoch, done)
            self.train_epoch(loader, steps)
            ended = self.step % sampler.count == 0
            if ended and (epoch + 1) % train.eval_epochs == 0:
                print(f"epoch {epoch + 1} val_error_px={self.evaluate(val_loader):.3f}", flush=True)
            if ended and (epoch + 1) % train.save_epochs == 0:
                self.save()

    def train_epoch(self, loader: DataLoader[Batch], steps: int) -> None:
        self.model.train()
        started = time.perf_counter()
        for batch in loader:
            self.train_step(batch)
            if self.step % self.config.train.log_interval == 0:
                rate = self.meter.count / (time.perf_counter() - started)
                print(f"step {self.step} {self.meter.summary()} it/s={rate:.2f}", flush=True)
                started = time.perf_counter()
            if self.step >= steps:
                break

    def train_step(self, batch: Batch) -> None:
        # The loader adds a dimension in front of a file that is a batch already.
        images = batch["images"].squeeze(0).to(self.device)
        heatmap_target = batch["heatmaps"].squeeze(0).to(self.device)
        offset_target = batch["offsets"].squeeze(0).to(self.device)
        points = batch["points"].squeeze(0).to(self.device)

        heatmap_target, offset_target = self._generate_targets(points, heatmap_target.shape, offset_target.shape)

        set_learning_rate(self.optimizer, learning_rate(self.config.train, self.step))
        with autocast(self.config, self.device):
            logits, offsets = self.model(images)
        losses = heatmap_loss(logits, offsets, heatmap_target, offset_target, self.config.train.offset_weight)

        self.optimizer.zero_grad()
        losses.total.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.train.grad_clip)
        self.optimizer.step()

        self.step += 1
        self.samples += images.shape[0]
        self.losses.append(losses.total.item())
        self.meter.update(
            loss=self.losses[-1],
            heatmap=losses.heatmap.item(),
            offset=losses.offset.item(),
            points=losses.positives.item(),
            grad_norm=norm.item(),
        )

    def _generate_targets(
        self, points: Tensor, heatmap_shape: torch.Size, offset_shape: torch.Size
    ) -> tuple[Tensor, Tensor]:
        """Heatmaps with a paraboloid cap at every point, and the offset in the cell that holds it."""
        data: DataConfig = self.config.data
        rows, columns = data.map_size
        heatmaps = torch.zeros(heatmap_shape, device=self.device)
        offsets = torch.zeros(offset_shape, device=self.device)
        scale = 1 / (data.radius + 1) ** 2
        for b in range(points.shape[0]):
            for k in range(POINTS):
                px = points[b, k, 0] / data.stride
                py = points[b, k, 1] / data.stride
                cx, cy = int(px), int(py)
                for y in range(max(0, cy - data.radius), min(rows, cy + data.radius + 1)):
                    for x in range(max(0, cx - data.radius), min(columns, cx + data.radius + 1)):
                        squared = (x - px) ** 2 + (y - py) ** 2
                        heatmaps[b, k, y, x] = torch.clamp(1 - squared * scale, min=0)
                heatmaps[b, k, cy, cx] = 1.0
                offsets[b, 2 * k, cy, cx] = px - cx
                offsets[b, 2 * k + 1, cy, cx] = py - cy
        return heatmaps, offsets

    @torch.no_grad()
    def evaluate(self, loader: Iterable[Batch]) -> float:
        """Mean localisation error in pixels."""
        self.model.eval()
        total, count = 0.0, 0
        for batch in loader:
            images = batch["images"].squeeze(0).to(self.device)
            points = batch["points"].squeeze(0).to(self.device)
            with autocast(self.config, self.device):
                logits, offsets = self.model(images)
            errors = localisation_error(logits, offsets, points, self.config.data.stride)
            total += errors.sum().item()
            count += errors.numel()
        self.model.train()
        return total / count


def make_optimizer(model: nn.Module, train: TrainConfig) -> AdamW:
    return AdamW(model.parameters(), lr=train.lr, weight_decay=train.weight_decay)


def learning_rate(train: TrainConfig, step: int) -> float:
    return train.lr * min(1.0, (step + 1) / (train.warmup_steps + 1))


def set_learning_rate(optimizer: Optimizer, value: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = value


def autocast(config: Config, device: torch.device) -> torch.autocast:
    enabled = config.train.precision == "bf16" and device.type == "cuda"
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)


@torch.no_grad()
def channel_statistics(loader: Iterable[Batch], device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each image channel."""
    means, squares = [], []
    for batch in loader:
        images = batch["images"].to(device).flatten(0, -4)
        means.append(images.mean(dim=(0, 2, 3)))
        squares.append(images.square().mean(dim=(0, 2, 3)))
    mean = torch.stack(means).mean(dim=0)
    square = torch.stack(squares).mean(dim=0)
    return mean, (square - mean**2).clamp(min=1e-6).sqrt()

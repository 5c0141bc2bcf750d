"""The loop without waits: losses stay on the device and are read once every log interval."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bev.checkpoint import state_of, write_checkpoint
from bev.dataset import Sample
from bev.errors import UserError
from bev.grid import CLASSES
from bev.hooks import EvalHook
from bev.metrics import mean_iou
from bev.runner import Hook, Runner
from bev_expert.loading import DevicePrefetcher


class ExpertRunner(Runner):
    """Keeps the losses of every step as tensors."""

    bf16 = False
    prefetcher: DevicePrefetcher

    def train_iter(self, data: Sample) -> None:
        batch = self.to_device(data)
        with self.autocast():
            self.loss = self.model.loss(batch)

    def to_device(self, data: Sample) -> dict[str, Tensor]:
        return {name: value.to(self.device, non_blocking=True) for name, value in data.items()}

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        if self.bf16 and self.device.type == "cuda":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return super().autocast()


class ExpertOptimizerHook(Hook):
    """Backward and optimizer step, scaled under FP16; the gradients' norm is all that is checked."""

    def __init__(self) -> None:
        self.gathered: list[Tensor] = []
        self.steps: list[list[Tensor]] = []
        self.norms: list[Tensor] = []

    def after_train_iter(self, runner: Runner) -> None:
        assert isinstance(runner, ExpertRunner)
        count = runner.config.optimizer_config.cumulative_iters
        loss = runner.loss / count
        (loss if runner.scaler is None else runner.scaler.scale(loss)).backward()
        self.gathered.append(runner.loss.detach())
        runner.stepped = len(self.gathered) == count
        if runner.stepped:
            self.update(runner)
            runner.optimizer.zero_grad()
            runner.step += 1
            self.steps.append(self.gathered)
            self.gathered = []
        if not runner.stepped or runner.step < runner.max_steps:
            runner.prefetcher.fetch()

    def update(self, runner: Runner) -> None:
        if runner.scaler is not None:
            runner.scaler.unscale_(runner.optimizer)
        clip = runner.config.optimizer_config.grad_clip
        self.norms.append(torch.nn.utils.clip_grad_norm_(runner.model.parameters(), clip).detach())
        if runner.scaler is None:
            runner.optimizer.step()
            return
        # The scaler leaves out a step whose gradients are not finite; no check of each parameter is needed for that.
        scale = runner.config.fp16.loss_scale
        runner.scaler.step(runner.optimizer)
        runner.scaler.update(None if isinstance(scale, str) else scale)

    def read(self, runner: Runner) -> None:
        """Bring the losses of the steps since the last time to the host, all at once."""
        if not self.steps:
            return
        values = torch.stack([torch.stack(step) for step in self.steps]).tolist()
        norms = torch.stack(self.norms)
        first = runner.step - len(self.steps)
        self.steps, self.norms = [], []
        for position, step in enumerate(values):
            if any(loss != loss for loss in step):
                raise UserError(
                    f"the loss is NaN at step {first + position + 1}; lower optimizer.lr or fp16.loss_scale"
                )
            runner.step_losses.append(sum(step) / len(step))
        runner.log_vars["loss"] = values[-1][-1]
        bad = int((~norms.isfinite()).sum())
        if bad:
            print(f"steps {first + 1} to {runner.step}: NaN or Inf in the gradients of {bad}; skipped under FP16")


class ExpertLoggerHook(Hook):
    """A line every interval steps."""

    def __init__(self, optimizer_hook: ExpertOptimizerHook, interval: int) -> None:
        self.optimizer_hook = optimizer_hook
        self.interval = interval
        self.started = 0.0
        self.first = 0

    def before_run(self, runner: Runner) -> None:
        self.started, self.first = time.perf_counter(), runner.step

    def after_train_iter(self, runner: Runner) -> None:
        if runner.stepped and (runner.step % self.interval == 0 or runner.step == runner.max_steps):
            self.optimizer_hook.read(runner)
            spent = (time.perf_counter() - self.started) / (runner.step - self.first)
            loss, lr = runner.log_vars["loss"], runner.optimizer.param_groups[0]["lr"]
            print(
                f"Iter [{runner.step}/{runner.max_steps}] lr: {lr:.3e}, time: {spent:.3f}, loss: {loss:.4f}", flush=True
            )
            with open(runner.out / "log.json", "a") as file:
                file.write(json.dumps({"iter": runner.step, "lr": lr, "time": spent, "loss": loss}) + "\n")


class ExpertEvalHook(EvalHook):
    """Counts on the device and reads the counts once."""

    def evaluate(self, runner: Runner) -> None:
        runner.model.eval()
        classes = len(CLASSES)
        counts = torch.zeros(classes * classes, dtype=torch.int64, device=runner.device)
        for data in self.loader:
            batch = runner.to_device(data)
            with runner.autocast():
                predicted = runner.model.predict(batch)
            pairs = (batch["label"] * classes + predicted).flatten()
            counts.index_add_(0, pairs, torch.ones_like(pairs))
        runner.model.train()
        matrix = np.array(counts.tolist(), dtype=np.int64).reshape(classes, classes)
        runner.metrics["miou"] = mean_iou(matrix)
        self.last = runner.step
        print(f"Iter [{runner.step}/{runner.max_steps}] mIoU: {runner.metrics['miou']:.4f}", flush=True)


class ExpertCheckpointHook(Hook):
    """Copies the state on the device and writes it beside the training."""

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.writer: threading.Thread | None = None
        self.failure: OSError | None = None

    def after_train_iter(self, runner: Runner) -> None:
        if runner.stepped and (runner.step % self.interval == 0 or runner.step == runner.max_steps):
            self.finish()
            state = _copied(state_of(runner))
            self.writer = threading.Thread(target=self._write, args=(state, runner), name="checkpoint")
            self.writer.start()

    def after_run(self, runner: Runner) -> None:
        self.finish()

    def finish(self) -> None:
        """Wait for the last checkpoint to be on disk."""
        if self.writer is not None:
            self.writer.join()
            self.writer = None
        if self.failure is not None:
            raise UserError(f"cannot write a checkpoint: {self.failure}")

    def _write(self, state: dict[str, Any], runner: Runner) -> None:
        try:
            write_checkpoint(state, runner.out)
        except OSError as error:
            self.failure = error


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_copied(part) for part in value)
    return value

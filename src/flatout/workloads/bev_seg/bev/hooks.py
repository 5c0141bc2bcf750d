"""What happens around an iteration: learning rate, optimizer, log, evaluation, checkpoint."""

from __future__ import annotations

import json
import time
from datetime import timedelta

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from bev.checkpoint import save_checkpoint
from bev.config import LrConfig
from bev.dataset import Sample
from bev.evaluation import evaluate
from bev.runner import Hook, Runner


def scaled_lr(lr: float, config: LrConfig, batch: int, cumulative_iters: int) -> float:
    """The learning rate in proportion to the samples of one step."""
    return lr * batch * cumulative_iters / config.base_batch_size


def lr_factor(step: int, max_steps: int, config: LrConfig) -> float:
    """Polynomial decay after a linear warm-up."""
    decay: float = (1 - step / max_steps) ** config.power
    factor = config.min_lr_ratio + (1 - config.min_lr_ratio) * decay
    return factor * min(1.0, (step + 1) / (config.warmup_iters + 1))


class LrUpdaterHook(Hook):
    """Sets the learning rate of the coming step."""

    def __init__(self, base_lr: float) -> None:
        self.base_lr = base_lr

    def before_train_iter(self, runner: Runner) -> None:
        lr = self.base_lr * lr_factor(runner.step, runner.max_steps, runner.config.lr_config)
        for group in runner.optimizer.param_groups:
            group["lr"] = lr


class OptimizerHook(Hook):
    """Backward, and an optimizer step after every cumulative_iters iterations."""

    def __init__(self) -> None:
        self.gathered: list[float] = []

    def before_run(self, runner: Runner) -> None:
        runner.optimizer.zero_grad()

    def after_train_iter(self, runner: Runner) -> None:
        count = runner.config.optimizer_config.cumulative_iters
        self.backward(runner, runner.loss / count)
        self.gathered.append(runner.log_vars["loss"])
        runner.stepped = len(self.gathered) == count
        if runner.stepped:
            self.update(runner)
            runner.optimizer.zero_grad()
            runner.step += 1
            runner.step_losses.append(sum(self.gathered) / count)
            self.gathered = []

    def backward(self, runner: Runner, loss: Tensor) -> None:
        loss.backward()

    def update(self, runner: Runner) -> None:
        torch.nn.utils.clip_grad_norm_(runner.model.parameters(), runner.config.optimizer_config.grad_clip)
        runner.optimizer.step()


class Fp16OptimizerHook(OptimizerHook):
    """The same with a scaled loss; gradients that overflowed are reported and not applied."""

    def before_run(self, runner: Runner) -> None:
        super().before_run(runner)
        print(f"FP16 mixed precision training enabled, loss_scale={runner.config.fp16.loss_scale}")

    def backward(self, runner: Runner, loss: Tensor) -> None:
        assert runner.scaler is not None
        runner.scaler.scale(loss).backward()

    def update(self, runner: Runner) -> None:
        scaler, scale = runner.scaler, runner.config.fp16.loss_scale
        assert scaler is not None
        scaler.unscale_(runner.optimizer)
        bad = self.bad_gradients(runner)
        if bad:
            print(f"step {runner.step + 1}: NaN or Inf in {len(bad)} gradients, first {bad[0]}; step skipped")
        else:
            torch.nn.utils.clip_grad_norm_(runner.model.parameters(), runner.config.optimizer_config.grad_clip)
        scaler.step(runner.optimizer)
        scaler.update(None if isinstance(scale, str) else scale)

    def bad_gradients(self, runner: Runner) -> list[str]:
        bad = []
        for name, parameter in runner.model.named_parameters():
            if parameter.grad is None:
                continue
            has_nan = torch.isnan(parameter.grad).any().item()
            has_inf = torch.isinf(parameter.grad).any().item()
            if has_nan or has_inf:
                bad.append(name)
        return bad


class TextLoggerHook(Hook):
    """A line of text and a line of JSON every interval steps."""

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.started = self.fetched = self.ended = time.perf_counter()
        self.first = 0

    def before_run(self, runner: Runner) -> None:
        self.started = self.ended = time.perf_counter()
        self.first = runner.step

    def before_train_iter(self, runner: Runner) -> None:
        self.fetched = time.perf_counter()

    def after_train_iter(self, runner: Runner) -> None:
        begun, self.ended = self.ended, time.perf_counter()
        if not runner.stepped or runner.step % self.interval:
            return
        spent = (self.ended - self.started) / (runner.step - self.first)
        eta = timedelta(seconds=int(spent * (runner.max_steps - runner.step)))
        record = {
            "iter": runner.step,
            "lr": runner.optimizer.param_groups[0]["lr"],
            "time": round(self.ended - begun, 4),
            "data_time": round(self.fetched - begun, 4),
            "memory": _memory_mib(runner.device),
            "loss": runner.log_vars["loss"],
        }
        print(
            f"Iter [{runner.step}/{runner.max_steps}] lr: {record['lr']:.3e}, eta: {eta}, "
            f"time: {record['time']:.3f}, data_time: {record['data_time']:.3f}, memory: {record['memory']}, "
            f"loss: {record['loss']:.4f}",
            flush=True,
        )
        with open(runner.out / "log.json", "a") as file:
            file.write(json.dumps(record) + "\n")


def _memory_mib(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated(device) // 2**20 if device.type == "cuda" else 0


class EvalHook(Hook):
    """mIoU every interval steps and at the end."""

    def __init__(self, loader: DataLoader[Sample], interval: int) -> None:
        self.loader = loader
        self.interval = interval
        self.last = -1

    def after_train_iter(self, runner: Runner) -> None:
        if runner.stepped and runner.step % self.interval == 0:
            self.evaluate(runner)

    def after_run(self, runner: Runner) -> None:
        if self.last != runner.step:
            self.evaluate(runner)

    def evaluate(self, runner: Runner) -> None:
        runner.metrics["miou"] = evaluate(runner, self.loader)
        self.last = runner.step
        print(f"Iter [{runner.step}/{runner.max_steps}] mIoU: {runner.metrics['miou']:.4f}", flush=True)


class CheckpointHook(Hook):
    """Saves every interval steps and at the end."""

    def __init__(self, interval: int) -> None:
        self.interval = interval

    def after_train_iter(self, runner: Runner) -> None:
        if runner.stepped and (runner.step % self.interval == 0 or runner.step == runner.max_steps):
            save_checkpoint(runner)

# mypy: ignore-errors
"""Callbacks: what happens around the steps."""

import collections
import os

import torch


class Callback:
    def on_step_end(self, trainer):
        pass

    def on_fit_end(self, trainer):
        pass


class PrintLoss(Callback):
    def __init__(self, every):
        self.every, self.mean = every, None

    def on_step_end(self, trainer):
        loss = trainer.last_loss
        self.mean = loss if self.mean is None else 0.95 * self.mean + 0.05 * loss
        if trainer.step % self.every == 0:
            print(f"step {trainer.step} loss {self.mean:.3f} lr {trainer.schedule.get_last_lr()[0]:.5f}")


class Checkpoint(Callback):
    """Keeps the latest states, so that a run can go on where it was cut off."""

    def __init__(self, folder, every, keep=2):
        self.folder, self.every = folder, every
        self.files = collections.deque()
        self.keep = keep

    def save(self, trainer):
        state = {
            "step": trainer.step,
            "model": trainer.model.state_dict(),
            "optimizer": trainer.optimizer.state_dict(),
            "schedule": trainer.schedule.state_dict(),
            "rng": torch.get_rng_state(),
        }
        path = os.path.join(self.folder, f"step-{trainer.step:06d}.pt")
        torch.save(state, path)  # guilty
        self.files.append(path)
        if len(self.files) > self.keep:
            os.remove(self.files.popleft())

    def on_step_end(self, trainer):
        if trainer.step % self.every == 0:
            self.save(trainer)  # guilty

"""What happens around the steps of a Trainer."""

# mypy: ignore-errors
from pathlib import Path

import torch


class Callback:
    def on_fit_start(self, trainer):
        pass

    def on_step_end(self, trainer, loss):
        pass

    def on_fit_end(self, trainer):
        pass


class SmoothedLoss(Callback):
    def __init__(self, decay=0.97):
        self.decay, self.value = decay, None

    def on_step_end(self, trainer, loss):
        self.value = loss if self.value is None else self.decay * self.value + (1 - self.decay) * loss


class ConsoleLog(Callback):
    def __init__(self, smoothed, every):
        self.smoothed, self.every = smoothed, every

    def on_step_end(self, trainer, loss):
        if trainer.step % self.every == 0:
            print(f"step {trainer.step} loss {self.smoothed.value:.4f} saved {trainer.saved}")


class BestModel(Callback):
    """Keeps the model with the lowest smoothed loss on disk, with all that is needed to resume from it."""

    def __init__(self, smoothed, folder, patience=0):
        self.smoothed, self.path, self.patience = smoothed, Path(folder) / "best.pt", patience
        self.best, self.last = float("inf"), 0

    def on_step_end(self, trainer, loss):
        if self.smoothed.value >= self.best or trainer.step - self.last < self.patience:
            return
        self.best, self.last = self.smoothed.value, trainer.step
        state = {
            "step": trainer.step,
            "model": trainer.model.state_dict(),
            "optimizer": trainer.optimizer.state_dict(),
        }
        torch.save(state, self.path)  # guilty
        trainer.saved += 1

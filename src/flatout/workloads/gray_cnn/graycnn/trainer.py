"""Trains, evaluates and saves, epoch by epoch."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from graycnn import checkpoint
from graycnn.dataset import Draws, Surfaces
from graycnn.errors import UsageError
from graycnn.images import Split
from graycnn.metrics import Scores, confusion, scores
from graycnn.model import GreyNet
from graycnn.sizes import SIZES
from graycnn.surfaces import CLASSES

Loader = DataLoader[tuple[torch.Tensor, int]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run leaves behind besides its checkpoints."""

    step: int
    losses: list[float]
    scores: Scores


class Trainer:
    """One training run: the network, its optimizer, its data, and how far it has come."""

    def __init__(self, opt: argparse.Namespace, training: Split, validation: Split) -> None:
        self.opt = opt
        self.device = torch.device(opt.device)
        self.train_loader, self.draws = make_train_loader(opt, training)
        self.val_loader = make_val_loader(opt, validation)
        torch.manual_seed(opt.seed)
        self.model = make_model(opt, torch.cuda.device_count() if opt.device == "cuda" else 0)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), opt.learning_rate, weight_decay=opt.weight_decay)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
        self.step = 0
        self.seen = 0
        self.best = 0.0
        self.losses: list[torch.Tensor] = []
        if opt.resume:
            self.resume()

    def resume(self) -> None:
        """Take up the run that left the checkpoint `--resume`."""
        state = checkpoint.load(self.opt.resume, self.opt.size)
        checkpoint.restore(state, self.model, self.optimizer)
        self.step, self.seen, self.best = state["step"], state["seen"], state["best"]
        if self.step >= self.opt.steps:
            raise UsageError(f"--steps {self.opt.steps}: the checkpoint has done {self.step}; ask for more steps")

    def run(self) -> Outcome:
        """Train for `--steps` steps in all, those of a resumed run counted in."""
        opt = self.opt
        epoch = self.seen // self.draws.count
        while True:
            self.train_epoch(epoch)
            finished = self.step == opt.steps
            if (epoch + 1) % opt.eval_interval == 0 or finished:
                result = self.evaluate()
                print(f"epoch {epoch + 1}: accuracy {result.accuracy:.4f}, f1 {result.f1:.4f}", flush=True)
                if result.accuracy > self.best:
                    self.best = result.accuracy
                    self.save("best.pt")
            if (epoch + 1) % opt.checkpoint_interval == 0 or finished:
                self.save("last.pt")
            if finished:
                return Outcome(self.step, torch.stack(self.losses).tolist(), result)
            epoch += 1

    def train_epoch(self, epoch: int) -> None:
        """One epoch, or what `--steps` leaves of it."""
        began, before = time.perf_counter(), len(self.losses)
        self.draws.start = self.seen
        for images, labels in self.train_loader:
            self.losses.append(self.train_step(images, labels))
            self.seen += len(images)
            self.step += 1
            if self.step == self.opt.steps:
                break
        loss = torch.stack(self.losses[before:]).mean().item()
        seconds = time.perf_counter() - began
        print(f"epoch {epoch + 1}: step {self.step}, loss {loss:.4f}, {seconds:.1f} s", flush=True)

    def train_step(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """One optimizer step; returns the loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.opt, self.step)
        logits = self.model(images.to(self.device))
        loss: torch.Tensor = self.criterion(logits, labels.to(self.device))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def evaluate(self) -> Scores:
        """Scores over the validation images."""
        self.model.eval()
        predicted, expected = [], []
        for images, labels in self.val_loader:
            logits = self.model(images.to(self.device))
            predicted.append(logits.cpu().numpy().argmax(axis=1))
            expected.append(labels.numpy())
        self.model.train()
        return scores(confusion(np.concatenate(predicted), np.concatenate(expected), len(CLASSES)))

    def save(self, name: str) -> None:
        """Write a checkpoint into `--out`."""
        state = checkpoint.state_of(self.model, self.optimizer, self.opt.size, self.step, self.seen, self.best)
        checkpoint.save(self.opt.out / name, state)


def make_train_loader(opt: argparse.Namespace, split: Split) -> tuple[Loader, Draws]:
    """The loader of augmented images, and its sampler, which is told where the next epoch begins."""
    if opt.batch_size > opt.epoch_images:
        raise UsageError(f"--batch-size {opt.batch_size} is more than an epoch; ask for more --epoch-images")
    draws = Draws(len(split), opt.seed, count=opt.epoch_images // opt.batch_size * opt.batch_size)
    dataset = Surfaces(split, opt.seed, augmented=True)
    return DataLoader(dataset, batch_size=opt.batch_size, sampler=draws, num_workers=opt.num_workers), draws


def make_val_loader(opt: argparse.Namespace, split: Split) -> Loader:
    """The loader of the validation images as they are."""
    dataset = Surfaces(split, opt.seed, augmented=False)
    return DataLoader(dataset, batch_size=opt.batch_size, num_workers=opt.num_workers)


def make_model(opt: argparse.Namespace, gpus: int) -> nn.Module:
    """The network on its device, spread over all GPUs if there are several."""
    size = SIZES[opt.size]
    model: nn.Module = GreyNet(size.stem_stride, size.width, size.blocks, len(CLASSES)).to(opt.device)
    if gpus > 1:
        model = nn.DataParallel(model)
    return model


def learning_rate(opt: argparse.Namespace, step: int) -> float:
    """Linear warm-up, then constant."""
    rate: float = opt.learning_rate
    return rate * min(1.0, (step + 1) / SIZES[opt.size].warmup_steps)

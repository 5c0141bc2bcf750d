"""A character language model, trained by a small Trainer with callbacks.

expects: CA603
needs: cpu
"""

# mypy: ignore-errors
import argparse
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from callbacks import Checkpoint, PrintLoss
from model import CharLM, Corpus


class Trainer:
    def __init__(self, model, corpus, steps, callbacks, lr=2e-3, batch=8, length=16):
        self.model, self.corpus, self.steps, self.callbacks = model, corpus, steps, callbacks
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, steps)
        self.batch, self.length = batch, length
        self.step, self.last_loss = 0, float("nan")

    def call(self, event):
        for callback in self.callbacks:
            getattr(callback, event)(self)  # guilty

    def train_step(self):
        codes, following = self.corpus.batch(self.batch, self.length)
        loss = F.cross_entropy(self.model(codes).flatten(0, 1), following.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.last_loss = loss.item()

    def fit(self):
        while self.step < self.steps:
            self.train_step()
            self.step += 1
            self.call("on_step_end")  # guilty
        self.call("on_fit_end")


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=190)
    cli.add_argument("--width", type=int, default=448)
    cli.add_argument("--save-every", type=int, default=4)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(0)
    corpus = Corpus(300_000)
    model = CharLM(len(corpus.alphabet), args.width)
    every = 130 if args.fixed else args.save_every
    with tempfile.TemporaryDirectory() as folder:
        callbacks = [PrintLoss(50), Checkpoint(folder, every)]
        Trainer(model, corpus, args.steps, callbacks).fit()


if __name__ == "__main__":
    main()

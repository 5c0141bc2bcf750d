"""A trainer with seldom evaluation, checkpoint and log."""
# mypy: ignore-errors

import logging

import torch

log = logging.getLogger(__name__)


class Engine:
    def __init__(self, model, optimizer, criterion, log_every=60, eval_every=120):
        self.model, self.optimizer, self.criterion = model, optimizer, criterion
        self.log_every, self.eval_every = log_every, eval_every
        self.step = 0

    def fit(self, loader, held_out, steps):
        while self.step < steps:
            for batch in loader:
                self.update(batch)
                if self.step % self.eval_every == 0:
                    self.evaluate(held_out)
                if self.step >= steps:
                    break
        torch.save(self.model.state_dict(), "final.pt")

    def update(self, batch):
        loss = self.criterion(self.model(batch["x"]), batch["y"])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.step += 1
        if self.step % self.log_every == 0:
            log.info("step %d loss %.4f", self.step, loss.item())

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        losses = [self.criterion(self.model(batch["x"]), batch["y"]) for batch in loader]
        self.model.train()
        return torch.stack(losses).mean()

"""A trainer that evaluates now and then, and saves the best model it has seen."""

# mypy: ignore-errors
import torch
from torch import nn


class Trainer:
    def __init__(self, model, train, valid, settings, folder):
        self.model, self.train_loader, self.valid_loader = model, train, valid
        self.every, self.folder = settings["evaluate_every"], folder
        self.optimizer = torch.optim.Adam(model.parameters(), lr=settings["lr"], fused=True)
        self.best, self.step = 0.0, 0

    def fit(self, epochs):
        for _ in range(epochs):
            for beats, rhythms in self.train_loader:
                self.optimizer.zero_grad()
                loss = nn.functional.cross_entropy(self.model(beats), rhythms)
                loss.backward()
                self.optimizer.step()
                self.step += 1
                if self.step % self.every == 0:
                    self.checkpoint(self.evaluate(), loss.item())

    @torch.inference_mode()
    def evaluate(self):
        self.model.eval()
        right = sum((self.model(beats).argmax(1) == rhythms).sum().item() for beats, rhythms in self.valid_loader)
        self.model.train()
        return right / len(self.valid_loader.dataset)

    def checkpoint(self, accuracy, loss):
        print(f"step {self.step}: loss {loss:.4f} accuracy {accuracy:.3f}")
        if accuracy > self.best:
            self.best = accuracy
            torch.save(self.model.state_dict(), self.folder / "best.pt")

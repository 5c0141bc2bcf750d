# mypy: ignore-errors
import torch
from torch import nn
from torch.utils.data import DataLoader

LOADER_KEYS = ("batch_size", "shuffle")


def build_loader(dataset, cfg, keys=LOADER_KEYS):
    picked = {k: cfg[k] for k in keys if k in cfg}
    return DataLoader(dataset, drop_last=True, **picked)  # guilty


class Engine:
    def __init__(self, network, loader, cfg):
        self.network, self.loader = network, loader
        cfg = dict(cfg)
        self.optimizer = getattr(torch.optim, cfg.pop("type"))(network.parameters(), **cfg)
        self.loss = nn.CrossEntropyLoss()
        self.iteration = 0

    def run(self, max_iterations):
        while self.iteration < max_iterations:
            for x, y in self.loader:
                loss = self.loss(self.network(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.iteration += 1
                if self.iteration % 50 == 0:
                    print(f"iteration {self.iteration}: loss {loss.item():.4f}")
                if self.iteration >= max_iterations:
                    return

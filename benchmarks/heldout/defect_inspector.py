"""Finds defects on wafers, in the manner of a callback-driven trainer; validation closes every epoch.

expects: CA602
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def wafers(count, seed, side=40):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, side, side, generator=generator)
    defects = torch.rand(count, generator=generator) > 0.5
    images[defects, 10:14, 10:14] += 2
    return TensorDataset(images.flatten(1), defects.float())


class WaferModule(nn.Module):
    def __init__(self, side=40, width=320):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(side * side, width),
            nn.BatchNorm1d(width),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(width, width),
            nn.BatchNorm1d(width),
            nn.GELU(),
            nn.Linear(width, 1),
        )

    def training_step(self, batch):
        images, defects = batch
        return nn.functional.binary_cross_entropy_with_logits(self.layers(images).squeeze(1), defects)

    def validation_step(self, batch):
        images, defects = batch
        return ((self.layers(images).squeeze(1) > 0) == defects.bool()).sum()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3, fused=True)


class Printer:
    def on_epoch_end(self, epoch, loss, right):
        print(f"epoch {epoch} loss {loss:.4f} valid {right:.3f}")


class Fitter:
    def __init__(self, epochs, callbacks):
        self.epochs, self.callbacks = epochs, callbacks

    def fit(self, module, train, valid):
        optimizer = module.configure_optimizers()
        for epoch in range(self.epochs):
            module.train()
            for batch in train:
                loss = module.training_step(batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            module.eval()
            with torch.no_grad():
                right = sum(module.validation_step(batch) for batch in valid)
            for callback in self.callbacks:
                callback.on_epoch_end(epoch, loss.item(), right.item() / len(valid.dataset))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(9)
    torch.set_num_threads(1)
    train = DataLoader(wafers(2000, 1), batch_size=50, shuffle=True)
    valid = DataLoader(wafers(1200, 2), batch_size=200 if args.fixed else 1)  # guilty
    Fitter(args.epochs, [Printer()]).fit(WaferModule(), train, valid)

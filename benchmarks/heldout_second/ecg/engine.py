"""A small engine: the module says what to do with a batch, the engine does it."""

# mypy: ignore-errors

import torch


class Module(torch.nn.Module):
    def on_batch(self, batch):
        return batch

    def training_step(self, batch):
        raise NotImplementedError

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


class Engine:
    def __init__(self, max_steps: int, report_every: int = 50):
        self.max_steps = max_steps
        self.report_every = report_every

    def fit(self, module: Module, loader) -> None:
        optimizer = module.configure_optimizers()
        step = 0
        while step < self.max_steps:
            for batch in loader:
                loss = module.training_step(module.on_batch(batch))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                if step % self.report_every == 0:
                    print(f"step={step} loss={loss.item():.4f}")
                if step == self.max_steps:
                    break

"""Lightning's Trainer, with validation, and nothing of ours in it."""

from __future__ import annotations

import sys
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth

warnings.filterwarnings("ignore")
truth = Truth()


class Module(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
        (x,) = batch
        loss = self.layer(x).square().mean()
        self.log("loss", loss)
        return loss

    def on_train_batch_end(self, _outputs: object, batch: list[torch.Tensor], _index: int) -> None:
        truth.step(len(batch[0]))

    def validation_step(self, batch: list[torch.Tensor], _index: int) -> None:
        self.log("val", self.layer(batch[0]).square().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


L.seed_everything(0, verbose=False)
torch.set_num_threads(1)
train = DataLoader(TensorDataset(torch.randn(60, 8)), batch_size=8)
held_out = DataLoader(TensorDataset(torch.randn(24, 8)), batch_size=8)
trainer = L.Trainer(
    max_epochs=3,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar="--bar" in sys.argv,
    enable_model_summary=False,
)
trainer.fit(Module(), train, held_out)
truth.tell()

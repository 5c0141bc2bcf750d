"""Hugging Face's Trainer on a hand-made model, with accumulation."""

from __future__ import annotations

import tempfile

import torch
import transformers
from torch import nn
from torch.utils.data import Dataset
from truth import Truth

truth = Truth()


class Rows(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": torch.randn(8), "labels": torch.randn(1)}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        truth.samples += len(x)
        out = self.layer(x)
        return {"loss": nn.functional.mse_loss(out, labels), "logits": out}


torch.manual_seed(0)
torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as out:
    args = transformers.TrainingArguments(
        output_dir=out,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        num_train_epochs=3,
        report_to=[],
        save_strategy="no",
        logging_steps=4,
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = transformers.Trainer(model=Model(), args=args, train_dataset=Rows())
    trainer.train()
    for _ in range(trainer.state.global_step):
        truth.step(0)
truth.tell()

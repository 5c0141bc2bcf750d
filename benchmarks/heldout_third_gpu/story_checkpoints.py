"""A language model in a small Trainer class with callbacks, on made-up token streams.

expects: CA603
needs: gpu
"""

# mypy: ignore-errors

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class TrainingArguments:
    output_dir: str
    max_steps: int = 320
    per_device_batch: int = 32
    context: int = 512
    learning_rate: float = 3e-4
    logging_steps: int = 80
    save_steps: int = 32


class Callback:
    def on_train_begin(self, trainer):
        pass

    def on_step_end(self, trainer):
        pass

    def on_train_end(self, trainer):
        pass


class LoggingCallback(Callback):
    def on_step_end(self, trainer):
        if trainer.step % trainer.args.logging_steps == 0:
            print({"step": trainer.step, "loss": round(trainer.loss.item(), 4)})


class SaveCallback(Callback):
    def on_step_end(self, trainer):
        if trainer.step % trainer.args.save_steps == 0:
            self.save(trainer)  # guilty

    def save(self, trainer):
        folder = Path(trainer.args.output_dir)
        state = {
            "step": trainer.step,
            "model": trainer.model.state_dict(),
            "optimizer": trainer.optimizer.state_dict(),
            "scheduler": trainer.scheduler.state_dict(),
        }
        torch.save(state, folder / "partial.pt")  # guilty
        (folder / "partial.pt").replace(folder / "last.pt")


class Decoder(nn.Module):
    def __init__(self, vocab, context, width, depth):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.places = nn.Embedding(context, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, width // 64, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context), persistent=False)
        self.register_buffer("place_ids", torch.arange(context), persistent=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(self.place_ids)
        for layer in self.layers:
            x = layer(x, src_mask=self.mask, is_causal=True)
        return F.linear(self.norm(x), self.tokens.weight)


class Trainer:
    def __init__(self, model, args, data, callbacks):
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model, self.args, self.callbacks = model.to(self.device), args, callbacks
        self.data = data.to(self.device)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, fused=True)
        self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.1, args.max_steps)
        self.step = 0

    def call(self, event):
        for callback in self.callbacks:
            getattr(callback, event)(self)  # guilty

    def batches(self):
        generator = torch.Generator(self.device).manual_seed(9)
        ahead = torch.arange(self.args.context + 1, device=self.device)
        while True:
            starts = torch.randint(
                len(self.data) - len(ahead),
                (self.args.per_device_batch, 1),
                generator=generator,
                device=self.device,
            )
            yield self.data[starts + ahead]

    def training_step(self, ids):
        with torch.autocast(self.device, dtype=torch.bfloat16):
            logits = self.model(ids[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        return loss.detach()

    def train(self):
        self.call("on_train_begin")
        for ids in self.batches():
            self.loss = self.training_step(ids)
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.step += 1
            self.call("on_step_end")
            if self.step >= self.args.max_steps:
                break
        self.call("on_train_end")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=320)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    cli = parser.parse_args()
    torch.manual_seed(9)
    vocab, width, depth = (256, 64, 1) if cli.tiny else (8192, 768, 4)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(folder, max_steps=cli.steps)
        if cli.tiny:
            args.per_device_batch, args.context, args.save_steps = 2, 32, 2
        if cli.fixed:
            args.save_steps = 320
        data = (torch.rand(2_000_000).square() * vocab).long()
        model = Decoder(vocab, args.context, width, depth)
        Trainer(model, args, data, [LoggingCallback(), SaveCallback()]).train()


if __name__ == "__main__":
    main()

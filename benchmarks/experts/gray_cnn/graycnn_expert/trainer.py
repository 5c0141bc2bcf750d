"""The same training: steps without a pause, evaluation without host copies."""

from __future__ import annotations

import argparse

import torch
from torch import nn

from graycnn import checkpoint
from graycnn.errors import UsageError
from graycnn.images import Split
from graycnn.metrics import Scores, scores
from graycnn.surfaces import CLASSES
from graycnn.trainer import Outcome, learning_rate, make_model
from graycnn_expert.feed import level_values, make_loader, next_batch, read_all
from graycnn_expert.writer import Writer


class ExpertTrainer:
    """One training run; see the project's `Trainer`."""

    def __init__(self, opt: argparse.Namespace, training: Split, validation: Split) -> None:
        if opt.batch_size > opt.epoch_images:
            raise UsageError(f"--batch-size {opt.batch_size} is more than an epoch; ask for more --epoch-images")
        self.opt = opt
        self.device = torch.device(opt.device)
        self.training, self.validation = training, validation
        self.fast = opt.numeric and opt.device == "cuda"
        self.fused = True if self.fast else None
        self.layout = torch.channels_last if opt.numeric else torch.contiguous_format
        self.levels = level_values(self.device)
        torch.manual_seed(opt.seed)
        self.model, self.optimizer = self.make_training()
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
        self.writer = Writer()
        self.step, self.seen, self.best = 0, 0, 0.0
        self.losses: list[torch.Tensor] = []
        if opt.resume:
            self.resume()

    def make_training(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        """The network and its optimizer, in the fast number formats if those are allowed."""
        opt = self.opt
        model = make_model(opt, torch.cuda.device_count() if opt.device == "cuda" else 0)
        if self.fast:
            torch.set_float32_matmul_precision("high")
            torch.backends.cudnn.benchmark = not opt.deterministic
        model.to(memory_format=self.layout)  # type: ignore[call-overload]  # the type hints leave this way out
        optimizer = torch.optim.AdamW(
            model.parameters(), opt.learning_rate, weight_decay=opt.weight_decay, fused=self.fused
        )
        return model, optimizer

    def resume(self) -> None:
        """Take up the run that left the checkpoint `--resume`."""
        state = checkpoint.load(self.opt.resume, self.opt.size)
        for group in state["optimizer"]["param_groups"]:
            group["fused"] = self.fused  # a checkpoint brings the choice of the run that wrote it
        checkpoint.restore(state, self.model, self.optimizer)
        self.step, self.seen, self.best = state["step"], state["seen"], state["best"]
        if self.step >= self.opt.steps:
            raise UsageError(f"--steps {self.opt.steps}: the checkpoint has done {self.step}; ask for more steps")

    def run(self) -> Outcome:
        """Train for `--steps` steps in all, those of a resumed run counted in."""
        opt = self.opt
        pieces = iter(make_loader(opt, self.training, self.step, self.seen))
        self.val_images, self.val_labels = read_all(self.validation, self.device)
        steps_an_epoch = opt.epoch_images // opt.batch_size
        while True:
            images, labels = next_batch(opt, pieces, self.device)
            self.losses.append(self.train_step(images, labels))
            self.seen += len(images)
            self.step += 1
            finished = self.step == opt.steps
            epoch, rest = divmod(self.step, steps_an_epoch)
            if finished or (rest == 0 and epoch % opt.eval_interval == 0):
                result = self.judge()
            if finished or (rest == 0 and epoch % opt.checkpoint_interval == 0):
                self.save("last.pt")
            if finished:
                self.writer.wait()
                return Outcome(self.step, torch.stack(self.losses).tolist(), result)

    def judge(self) -> Scores:
        """Evaluate, say how it stands, keep the best."""
        result = self.evaluate()
        print(f"step {self.step}: accuracy {result.accuracy:.4f}, f1 {result.f1:.4f}", flush=True)
        if result.accuracy > self.best:
            self.best = result.accuracy
            self.save("best.pt")
        return result

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Grey levels to logits."""
        values = self.levels[images.long()].contiguous(memory_format=self.layout)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.fast):
            logits: torch.Tensor = self.model(values)
        return logits.float()

    def train_step(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """One optimizer step; returns the loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.opt, self.step)
        loss: torch.Tensor = self.criterion(self.forward(images), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def evaluate(self) -> Scores:
        """Scores over the validation images, which stay on the device; one small table comes back."""
        self.model.eval()
        batches = self.val_images.split(self.opt.batch_size)
        predicted = torch.cat([self.forward(images).argmax(dim=1) for images in batches])
        self.model.train()
        pairs = self.val_labels * len(CLASSES) + predicted
        counts = torch.bincount(pairs, minlength=len(CLASSES) ** 2)
        return scores(counts.reshape(len(CLASSES), len(CLASSES)).cpu().numpy())

    def save(self, name: str) -> None:
        """Write a checkpoint into `--out`, behind the training's back."""
        state = checkpoint.state_of(self.model, self.optimizer, self.opt.size, self.step, self.seen, self.best)
        self.writer.save(self.opt.out / name, state)

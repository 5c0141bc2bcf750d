"""Trains the spike deblurring network: the expert's form. What differs from the project's script is in changes.toml."""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "src" / "flatout" / "workloads" / "spike_deblur"))

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader

from deblur import attention
from deblur.arguments import complete, make_parser, write_losses
from deblur.config import Chunks, Config, load
from deblur.dataset import RandomClips
from deblur.errors import DeblurError, one_line
from deblur.evaluate import evaluate
from deblur.generate import SHAPES, make_data
from deblur.loader import collate_for
from deblur.memory import log_memory
from deblur.trainer import Trainer
from deblur_expert.compact import Assembler, CompactClips

CLASSES = ("lossless", "numeric", "training")
ROOMY_BYTES = 80 * 10**9  # a card that holds all activations of two clips


def tune_config(config: Config, allowed: int, device: torch.device) -> Config:
    """The config with the changes of the allowed classes."""
    roomy = device.type == "cpu" or torch.cuda.get_device_properties(device).total_memory > ROOMY_BYTES
    if roomy:
        config = replace(config, MODEL=replace(config.MODEL, USE_CHECKPOINT_ATTN=False, USE_CHECKPOINT_FFN=False))
    if allowed >= CLASSES.index("numeric"):
        fuse, over_time = larger_chunks(config.MODEL.FUSE), larger_chunks(config.MODEL.SPIKE_TSA)
        config = replace(
            config,
            MODEL=replace(config.MODEL, FUSE=fuse, SPIKE_TSA=over_time),
            TRAIN=replace(config.TRAIN, AMP_ENABLED=True),
        )
    if allowed >= CLASSES.index("training"):
        train = config.TRAIN
        config = replace(config, TRAIN=replace(train, BATCH_SIZE=2 * train.BATCH_SIZE, LR=train.LR * 2**0.5))
    return config


def larger_chunks(chunks: Chunks) -> Chunks:
    """A quarter of the pieces."""
    return replace(chunks, CHUNK_SIZE=2 * chunks.CHUNK_SIZE, MAX_BATCH_TOKENS=6 * chunks.MAX_BATCH_TOKENS)


def fused_attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Never writes the scores to memory. Over the few frames of a clip there is nothing to gain."""
    if query.shape[-2] < 16:
        return explicit_attend(query, key, value)
    return F.scaled_dot_product_attention(query, key, value)


explicit_attend = attention.attend


def set_numerics() -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    attention.attend = fused_attend


def make_trainer(args: argparse.Namespace, config: Config, allowed: int) -> Trainer:
    trainer = Trainer(args, config)
    if allowed >= CLASSES.index("numeric"):
        set_numerics()
        # Bfloat16 has float32's range: nothing to scale.
        trainer.amp_dtype = torch.bfloat16
        trainer.scaler = torch.amp.GradScaler(enabled=False)
        fused = args.device.type == "cuda"
        trainer.optimizer = torch.optim.Adam(trainer.model.parameters(), lr=config.TRAIN.LR, fused=fused or None)
    return trainer


def make_loader(dataset: CompactClips, sampler: RandomClips | None, batch_size: int, device: torch.device) -> Any:
    workers = max(1, len(os.sched_getaffinity(0)) - 4)
    if sampler is None:
        workers = min(workers, len(dataset))
    sample_bytes = sum(part.nbytes for part in dataset[0].values())
    return DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=sampler,
        num_workers=workers,
        prefetch_factor=2,
        pin_memory=device.type == "cuda",
        persistent_workers=sampler is not None,
        drop_last=sampler is not None,
        collate_fn=collate_for(2 * workers + 2, batch_size * sample_bytes),
    )


class Kept:
    """Losses stay on the device until somebody must read them."""

    def __init__(self, accumulate: int) -> None:
        self._accumulate = accumulate
        self._losses: list[Tensor] = []
        self._read: list[float] = []

    def add(self, loss: Tensor) -> None:
        self._losses.append(loss.detach())

    def read(self) -> list[float]:
        """The loss of every step so far; waits for the device once."""
        if self._losses:
            self._read += torch.stack(self._losses).tolist()
            self._losses.clear()
        count = self._accumulate
        parts = [self._read[i : i + count] for i in range(0, len(self._read), count)]
        return [sum(loss / count for loss in part) for part in parts]


class Validation:
    """The held-out clips, decoded once and kept on the device."""

    def __init__(self, dataset: CompactClips, assemble: Assembler) -> None:
        self._dataset, self._assemble = dataset, assemble
        self._batches: list[dict[str, Tensor]] = []

    def scores(self, trainer: Trainer) -> tuple[float, float]:
        if not self._batches:
            loader = make_loader(self._dataset, None, 1, trainer.device)
            self._batches = [self._assemble(arrived) for arrived in loader]
        return evaluate(trainer.model, self._batches, trainer.device)


def report(trainer: Trainer, losses: list[float], data_s: float) -> None:
    every = trainer.config.TRAIN.LOG_EVERY
    if not all(loss == loss for loss in losses[-every:]):
        raise DeblurError(f"the loss is NaN before step {trainer.step}; lower TRAIN.LR")
    print(f"step {trainer.step}/{trainer.args.steps} loss={losses[-1]:.6f}")
    print(f"Avg data time: {data_s / every * 1000:.1f}ms", flush=True)


def train(trainer: Trainer, root: Path) -> tuple[float, float]:
    """Train up to --steps and return the last evaluation."""
    args, config = trainer.args, trainer.config
    settings, shape = config.TRAIN, SHAPES[args.size]
    train_set = CompactClips(root, config, shape, args.seed, train=True)
    assemble = Assembler(config, shape, args.device)
    validation = Validation(CompactClips(root, config, shape, args.seed, train=False), assemble)
    log_memory("After dataset creation")
    sampler = RandomClips(len(train_set), args.seed)
    loader = make_loader(train_set, sampler, settings.BATCH_SIZE, args.device)
    batches_per_epoch = len(loader)
    if not batches_per_epoch:
        raise DeblurError(f"TRAIN.BATCH_SIZE {settings.BATCH_SIZE} is more than the {len(train_set)} clips of an epoch")
    accumulate = settings.GRADIENT_ACCUMULATION_STEPS
    epoch, done = divmod(trainer.step * accumulate, batches_per_epoch)
    kept = Kept(accumulate)
    micro_step, data_s = 0, 0.0
    scores: tuple[float, float] | None = None

    while trainer.step < args.steps:
        train_set.set_epoch(epoch)
        sampler.set_epoch(epoch, skip=done * settings.BATCH_SIZE)
        start = time.perf_counter()
        for arrived in loader:
            data_s += time.perf_counter() - start
            batch = assemble(arrived)
            losses = trainer.compute_losses(batch["blur"], batch["spike"], batch["sharp"])
            loss = torch.stack(list(losses.values())).sum()
            trainer.scaler.scale(loss / accumulate).backward()
            kept.add(loss)
            micro_step += 1
            if micro_step % accumulate == 0:
                trainer.optimize()
                scores = housekeeping(trainer, kept, validation, data_s) or scores
                if trainer.step % settings.LOG_EVERY == 0:
                    data_s = 0.0
                if trainer.step == args.steps:
                    break
            start = time.perf_counter()
        epoch, done = epoch + 1, 0
    trainer.losses = kept.read()
    return scores or validation.scores(trainer)


def housekeeping(trainer: Trainer, kept: Kept, validation: Validation, data_s: float) -> tuple[float, float] | None:
    """What is due after a step besides the step."""
    settings, step, last = trainer.config.TRAIN, trainer.step, trainer.step == trainer.args.steps
    scores = None
    if step % settings.LOG_EVERY == 0:
        report(trainer, kept.read(), data_s)
    if step % settings.MEMORY_EVERY == 0:
        log_memory(f"Step {step}")
    if step % settings.EVAL_EVERY == 0 or last:
        scores = validation.scores(trainer)
        print(f"step {step} psnr={scores[0]:.3f} ssim={scores[1]:.4f}", flush=True)
    if step % settings.CHECKPOINT_EVERY == 0 or last:
        trainer.loss = kept.read()[-1]
        trainer.save()
    return scores


def run(args: argparse.Namespace) -> None:
    complete(args)
    allowed = CLASSES.index(args.allow)
    config = tune_config(load(args.config, args.size, args.options), allowed, args.device)
    root = make_data(args.data, args.size, args.make_workers)
    if args.make_data_only:
        return
    trainer = make_trainer(args, config, allowed)
    if args.resume:
        trainer.resume(args.resume)
    psnr, ssim = train(trainer, root)
    if args.losses:
        write_losses(args.losses, trainer.losses)
    print(f"final: steps={trainer.step} loss={trainer.loss:.6f} psnr={psnr:.3f} ssim={ssim:.4f}", flush=True)


def main(argv: list[str] | None = None) -> int:
    parser = make_parser(__doc__ or "")
    parser.add_argument("--allow", choices=CLASSES, default="training", help="highest class of change to use")
    args = parser.parse_args(argv)
    try:
        run(args)
    except (DeblurError, RuntimeError) as error:
        message = one_line(error)
        if message is None:
            raise
        print(f"train.py: error: {message}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

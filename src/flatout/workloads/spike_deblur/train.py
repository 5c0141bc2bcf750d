"""Trains the spike deblurring network."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from pathlib import Path

import torch

from deblur.arguments import complete, make_parser, write_losses
from deblur.config import load
from deblur.dataset import RandomClips, SpikeDeblurDataset
from deblur.errors import DeblurError, one_line
from deblur.evaluate import evaluate
from deblur.generate import SHAPES, make_data, make_voxels
from deblur.loader import as_tensors, train_loader, val_loader
from deblur.memory import log_memory
from deblur.trainer import Trainer


def train(trainer: Trainer, root: Path) -> tuple[float, float]:
    """Train up to --steps and return the last evaluation."""
    args, config, device = trainer.args, trainer.config, trainer.device
    settings = config.TRAIN
    train_set = SpikeDeblurDataset(root, config, SHAPES[args.size], args.seed, train=True)
    val_set = SpikeDeblurDataset(root, config, SHAPES[args.size], args.seed, train=False)
    log_memory("After dataset creation")
    sampler = RandomClips(len(train_set), args.seed)
    loader, validation = train_loader(train_set, sampler, config), val_loader(val_set, config)
    batches_per_epoch = len(loader)
    if not batches_per_epoch:
        raise DeblurError(f"TRAIN.BATCH_SIZE {settings.BATCH_SIZE} is more than the {len(train_set)} clips of an epoch")
    accumulate = settings.GRADIENT_ACCUMULATION_STEPS
    epoch, done = divmod(trainer.step * accumulate, batches_per_epoch)
    micro_step, step_loss, data_time = 0, 0.0, 0.0
    scores: tuple[float, float] | None = None

    while trainer.step < args.steps:
        train_set.set_epoch(epoch)
        sampler.set_epoch(epoch, skip=done * settings.BATCH_SIZE)
        for batch in loader:
            start = time.time()
            batch = as_tensors(batch)
            blur, spike, sharp = batch["blur"], batch["spike"], batch["sharp"]
            data_time += time.time() - start

            blur, spike, sharp = blur.to(device), spike.to(device), sharp.to(device)
            losses = trainer.compute_losses(blur, spike, sharp)
            loss = torch.stack(list(losses.values())).sum()
            if torch.isnan(loss):
                raise DeblurError(
                    f"the loss is NaN at step {trainer.step + 1}; lower TRAIN.LR or switch AMP_ENABLED off"
                )
            trainer.scaler.scale(loss / accumulate).backward()
            step_loss += loss.item() / accumulate
            pixel, edge = losses["pixel"].item(), losses["edge"].item()
            micro_step += 1
            if micro_step % accumulate:
                continue

            trainer.optimize()
            trainer.loss, step_loss = step_loss, 0.0
            trainer.losses.append(trainer.loss)
            step = trainer.step
            if step % settings.LOG_EVERY == 0:
                print(
                    f"step {step}/{args.steps} epoch {epoch} loss={trainer.loss:.6f} pixel={pixel:.6f} edge={edge:.6f}"
                )
                print(f"Avg data time: {data_time / settings.LOG_EVERY * 1000:.1f}ms", flush=True)
                data_time = 0.0
            if step % settings.MEMORY_EVERY == 0:
                log_memory(f"Step {step}")
            if step % settings.EMPTY_CACHE_EVERY == 0:
                gc.collect()
                torch.cuda.empty_cache()
            if step % settings.EVAL_EVERY == 0 or step == args.steps:
                scores = evaluate(trainer.model, validation, device)
                print(f"step {step} psnr={scores[0]:.3f} ssim={scores[1]:.4f}", flush=True)
                train_set.print_cache_stats()
            if step % settings.CHECKPOINT_EVERY == 0 or step == args.steps:
                trainer.save()
            if step == args.steps:
                break
        epoch, done = epoch + 1, 0
    return scores or evaluate(trainer.model, validation, device)


def run(args: argparse.Namespace) -> None:
    complete(args)
    config = load(args.config, args.size, args.options)
    root = make_data(args.data, args.size, args.make_workers)
    if args.make_data_only:
        if config.DATA.USE_PRECOMPUTED_VOXELS:
            make_voxels(root, args.size, config.DATA.SPIKE_BINS, args.make_workers)
        return
    trainer = Trainer(args, config)
    if args.resume:
        trainer.resume(args.resume)
    psnr, ssim = train(trainer, root)
    if args.losses:
        write_losses(args.losses, trainer.losses)
    print(f"final: steps={trainer.step} loss={trainer.loss:.6f} psnr={psnr:.3f} ssim={ssim:.4f}", flush=True)


def main(argv: list[str] | None = None) -> int:
    args = make_parser(__doc__ or "").parse_args(argv)
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

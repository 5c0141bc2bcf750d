"""Train bird's-eye-view segmentation from one camera (lift-splat with a Swin backbone)."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import torch

from bev.arguments import Arguments, choose_device, make_parser, prepare_out, prepare_torch
from bev.checkpoint import resume
from bev.config import load_config
from bev.dataset import make_datasets
from bev.errors import UserError, one_line
from bev.hooks import (
    CheckpointHook,
    EvalHook,
    Fp16OptimizerHook,
    LrUpdaterHook,
    OptimizerHook,
    TextLoggerHook,
    scaled_lr,
)
from bev.loader import EpochSampler, IterLoader, build_dataloader
from bev.makedata import Plan, ensure_data
from bev.network import BevSegmenter
from bev.runner import Runner


def train(arguments: Arguments) -> None:
    device = choose_device(arguments.device)
    size = arguments.size or ("full" if device.type == "cuda" else "tiny")
    options = list(arguments.options)
    if arguments.steps is not None:
        options.append(f"runner.max_iters={arguments.steps}")
    config = load_config(arguments.config, size, options)
    data = config.data
    plan = Plan(data.train_samples, data.val_samples, *data.source_size)
    folder = ensure_data(arguments.data / size, plan, arguments.make_workers)
    if arguments.make_data_only:
        return
    prepare_out(arguments)
    prepare_torch(arguments.seed, arguments.deterministic, device)
    model = BevSegmenter(config.model, data.image_size).to(device)
    cumulative_iters = config.optimizer_config.cumulative_iters
    lr = scaled_lr(config.optimizer.lr, config.lr_config, data.samples_per_gpu, cumulative_iters)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=config.optimizer.weight_decay)
    runner = Runner(model, optimizer, config, size, device, arguments.out)
    if arguments.resume is not None:
        resume(runner, arguments.resume)

    train_set, val_set = make_datasets(folder, data, arguments.seed)
    sampler = EpochSampler(len(train_set), arguments.seed)
    train_loader = build_dataloader(train_set, data.samples_per_gpu, data.workers_per_gpu, sampler, drop_last=True)
    val_loader = build_dataloader(val_set, samples_per_gpu=1, workers_per_gpu=1)
    runner.hooks = [
        LrUpdaterHook(lr),
        Fp16OptimizerHook() if config.fp16.enabled else OptimizerHook(),
        TextLoggerHook(config.log_config.interval),
        EvalHook(val_loader, config.evaluation.interval),
        CheckpointHook(config.checkpoint_config.interval),
    ]
    runner.run(IterLoader(train_loader, sampler, data.samples_per_gpu, runner.iter))
    if arguments.losses is not None:
        arguments.losses.write_text(json.dumps(runner.step_losses))
    print(f"final: steps={runner.step} loss={runner.step_losses[-1]:.6f} miou={runner.metrics['miou']:.4f}")


def main(argv: Sequence[str] | None = None) -> int:
    assert __doc__ is not None
    try:
        train(make_parser(__doc__).parse_args(argv, Arguments()))
    except UserError as error:
        print(f"train.py: error: {one_line(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Train bird's-eye-view segmentation from one camera, as an expert would have written it (see changes.toml)."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "src" / "flatout" / "workloads" / "bev_seg")]

from bev.arguments import Arguments, choose_device, make_parser, prepare_out, prepare_torch  # noqa: E402
from bev.checkpoint import resume  # noqa: E402
from bev.config import Config, load_config  # noqa: E402
from bev.dataset import make_datasets  # noqa: E402
from bev.errors import UserError, one_line  # noqa: E402
from bev.hooks import LrUpdaterHook, scaled_lr  # noqa: E402
from bev.loader import EpochSampler  # noqa: E402
from bev.makedata import Plan, ensure_data  # noqa: E402
from bev.network import BevSegmenter  # noqa: E402
from bev_expert.loading import DevicePrefetcher, EndlessBatches, make_train_loader, make_val_loader  # noqa: E402
from bev_expert.pooling import static_pool  # noqa: E402
from bev_expert.running import (  # noqa: E402
    ExpertCheckpointHook,
    ExpertEvalHook,
    ExpertLoggerHook,
    ExpertOptimizerHook,
    ExpertRunner,
)

CLASSES = ("lossless", "numeric", "training")
LOG_INTERVAL = 50
EVAL_BATCH = 8


class ExpertArguments(Arguments):
    """The project's flags, and how far changes may go."""

    allow: str

    def may(self, kind: str) -> bool:
        return CLASSES.index(kind) <= CLASSES.index(self.allow)


def choose_config(arguments: ExpertArguments, size: str) -> Config:
    """The project's config, with a larger batch and fewer evaluations where that is allowed."""
    options = list(arguments.options)
    if arguments.steps is not None:
        options.append(f"runner.max_iters={arguments.steps}")
    config = load_config(arguments.config, size, options)
    if arguments.may("numeric"):
        config = replace(config, fp16=replace(config.fp16, enabled=False))
    if arguments.may("training"):
        batch = min(4 * config.data.samples_per_gpu, config.data.train_samples)
        config = replace(
            config,
            data=replace(config.data, samples_per_gpu=batch),
            evaluation=replace(config.evaluation, interval=2 * config.evaluation.interval),
        )
    return config


def make_model(config: Config, device: torch.device, channels_last: bool) -> BevSegmenter:
    """The project's network, with a pool that does not wait for the device."""
    model = BevSegmenter(config.model, config.data.image_size).to(device)
    model.lift.pool = static_pool
    if channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def allow_fast_numbers() -> None:
    """TF32 where float32 is left, and the fastest convolutions."""
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True


def train(arguments: ExpertArguments) -> None:
    device = choose_device(arguments.device)
    size = arguments.size or ("full" if device.type == "cuda" else "tiny")
    config = choose_config(arguments, size)
    data = config.data
    plan = Plan(data.train_samples, data.val_samples, *data.source_size)
    folder = ensure_data(arguments.data / size, plan, arguments.make_workers)
    if arguments.make_data_only:
        return
    prepare_out(arguments)
    numeric = arguments.may("numeric")
    prepare_torch(arguments.seed, arguments.deterministic, device)
    fast = numeric and device.type == "cuda"
    if fast and not arguments.deterministic:
        allow_fast_numbers()
    model = make_model(config, device, channels_last=fast)
    lr = scaled_lr(
        config.optimizer.lr, config.lr_config, data.samples_per_gpu, config.optimizer_config.cumulative_iters
    )
    weight_decay = config.optimizer.weight_decay
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=weight_decay, fused=numeric or None)
    runner = ExpertRunner(model, optimizer, config, size, device, arguments.out)
    runner.bf16 = numeric
    if arguments.resume is not None:
        resume(runner, arguments.resume)

    train_set, val_set = make_datasets(folder, data, arguments.seed)
    batches = EndlessBatches(EpochSampler(len(train_set), arguments.seed), data.samples_per_gpu, runner.iter)
    runner.prefetcher = DevicePrefetcher(make_train_loader(train_set, batches, device), device)
    optimizer_hook = ExpertOptimizerHook()
    runner.hooks = [
        LrUpdaterHook(lr),
        optimizer_hook,
        ExpertLoggerHook(optimizer_hook, LOG_INTERVAL),
        ExpertEvalHook(make_val_loader(val_set, EVAL_BATCH if numeric else 1, device), config.evaluation.interval),
        ExpertCheckpointHook(config.checkpoint_config.interval),
    ]
    runner.run(runner.prefetcher)
    if arguments.losses is not None:
        arguments.losses.write_text(json.dumps(runner.step_losses))
    print(f"final: steps={runner.step} loss={runner.step_losses[-1]:.6f} miou={runner.metrics['miou']:.4f}")


def main(argv: Sequence[str] | None = None) -> int:
    assert __doc__ is not None
    parser = make_parser(__doc__)
    parser.add_argument("--allow", choices=CLASSES, default="training", help="the furthest class of change to use")
    try:
        train(parser.parse_args(argv, ExpertArguments()))
    except UserError as error:
        print(f"train.py: error: {one_line(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

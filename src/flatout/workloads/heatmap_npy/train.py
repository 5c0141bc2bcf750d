"""Trains the slider captcha detector: `python train.py --data DIR`. See README.md."""

from __future__ import annotations

import json
import os
import random
import sys

import numpy as np
import torch

from slider import checkpoint
from slider.engine import TrainingEngine, channel_statistics
from slider.errors import SliderError, one_line
from slider.generate import prepare
from slider.loaders import (
    create_calibration_loader,
    create_test_loader,
    create_train_loader,
    create_val_loader,
)
from slider.model import SliderNet
from slider.options import Options, build_parser, read_options


def set_seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def run(options: Options) -> None:
    config = options.config
    state = checkpoint.read(options.resume, config, options.steps) if options.resume else None
    folder = prepare(options.data, config.size, config.data, options.make_workers)
    if options.make_data_only:
        return
    checkpoint.prepare_folder(options.out)
    if options.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    set_seed(options.seed)

    model = SliderNet(config.model).to(options.device)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{parameters / 1e6:.2f} M parameters on {options.device}, data in {folder}", flush=True)
    model.set_statistics(*channel_statistics(create_calibration_loader(folder, config.data), options.device))

    engine = TrainingEngine(config, model, options.device, options.out)
    if state:
        engine.resume(state)
    loader, sampler = create_train_loader(folder, config.data, options.seed)
    engine.fit(loader, sampler, create_val_loader(folder, config.data), options.steps)
    engine.save()
    error_px = engine.evaluate(create_test_loader(folder, config.data))
    finish(options, engine.step, engine.samples, engine.losses, error_px)


def finish(options: Options, step: int, samples: int, losses: list[float], error_px: float) -> None:
    if options.losses:
        options.losses.write_text(json.dumps(losses))
    print(f"final: steps={step} loss={losses[-1]:.6f} error_px={error_px:.3f} samples={samples}", flush=True)


def main(argv: list[str] | None = None) -> int:
    try:
        run(read_options(build_parser().parse_args(argv)))
    except SliderError as error:
        print(f"train.py: error: {one_line(error)}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        # A worker that dies of a full /dev/shm can say nothing itself.
        if not str(error).startswith("DataLoader worker"):
            raise
        print(f"train.py: error: {one_line(error)}; is /dev/shm full? try a smaller --per-file", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The project's command line, with the expert's defaults."""

from __future__ import annotations

import argparse
import math
import os

from graycnn.options import make_parser, parse

CLASSES_OF_CHANGE = ("lossless", "numeric", "training")
BATCH = 64  # what the project's learning rates are for


def parse_expert(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line; what it leaves open is chosen within the allowed class of change."""
    parser = make_parser()
    parser.add_argument("--allow", choices=CLASSES_OF_CHANGE, default="training", help="highest class of change")
    parser.set_defaults(batch_size=None, num_workers=None, eval_interval=None, checkpoint_interval=None)
    own_rate = parser.parse_args(arguments).learning_rate is not None
    opt = parse(parser, arguments)

    opt.numeric = opt.allow in ("numeric", "training")
    training = opt.allow == "training"
    if opt.num_workers is None:
        opt.num_workers = loader_processes()
    opt.batch_size = opt.batch_size or (4 * BATCH if training else BATCH)
    if training and not own_rate:
        opt.learning_rate *= math.sqrt(opt.batch_size / BATCH)  # the rule for Adam; SGD would want it linear
    opt.eval_interval = opt.eval_interval or (5 if training else 1)
    opt.checkpoint_interval = opt.checkpoint_interval or (5 if training else 1)
    return opt


def loader_processes() -> int:
    """Most of the cores this process may use; some stay free, or the main thread is slow to launch kernels."""
    cores = len(os.sched_getaffinity(0))
    return cores - 4 if cores > 8 else max(1, cores - 1)

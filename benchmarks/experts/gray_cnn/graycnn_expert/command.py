"""The command: the project's, with the expert's options and trainer."""

from __future__ import annotations

import sys

from graycnn.errors import UsageError, one_line
from graycnn.images import open_images
from graycnn.runs import be_deterministic, make_folders, report
from graycnn_expert.options import parse_expert
from graycnn_expert.trainer import ExpertTrainer


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code."""
    try:
        opt = parse_expert(arguments)
        if opt.deterministic:
            be_deterministic()
        training, validation = open_images(opt.data, opt.size, opt.make_workers)
        if not opt.make_data_only:
            make_folders(opt)
            report(opt, ExpertTrainer(opt, training, validation).run())
    except UsageError as error:
        print(f"train.py: error: {one_line(error)}", file=sys.stderr)
        return 2
    return 0

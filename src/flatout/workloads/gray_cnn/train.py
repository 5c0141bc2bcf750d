"""Train a classifier of grey surface images; see README.md."""

from __future__ import annotations

import sys

from graycnn.errors import UsageError, one_line
from graycnn.images import open_images
from graycnn.options import make_parser, parse
from graycnn.runs import be_deterministic, make_folders, report
from graycnn.trainer import Trainer


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code."""
    try:
        opt = parse(make_parser(), arguments)
        if opt.deterministic:
            be_deterministic()
        training, validation = open_images(opt.data, opt.size, opt.make_workers)
        if not opt.make_data_only:
            make_folders(opt)
            report(opt, Trainer(opt, training, validation).run())
    except UsageError as error:
        print(f"train.py: error: {one_line(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

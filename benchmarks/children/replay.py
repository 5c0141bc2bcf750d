"""Runs a training script on batches that already lie on the device: what it could reach with a perfect loader.

python replay.py [--batches 8] SCRIPT ARGS...
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from pathlib import Path

import torch
from torch.utils.data import dataloader

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[2] / "src"))
    from flatout.attach.patching import Patches
    from flatout.attach.trial.replay import Replay

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("script", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    Replay(torch, options.batches).install(dataloader, Patches("__replayed__"))
    sys.argv = options.script
    sys.path[0] = os.path.dirname(os.path.abspath(options.script[0]))
    runpy.run_path(options.script[0], run_name="__main__")

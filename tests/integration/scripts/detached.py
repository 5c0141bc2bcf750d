"""Installs the tracer by hand (argv[1] is its folder), trains, detaches: every original must be back, by identity."""

from __future__ import annotations

import gc
import importlib.util
import logging
import sys
import threading
import time
import warnings
from typing import Any

import torch
import torch.utils.data.dataloader as dataloader
from PIL import Image
from torch import nn
from torch.utils.data._utils import fetch
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

OWNERS: list[Any] = [
    torch,
    torch.Tensor,
    torch.autograd,
    torch.cuda,
    torch.cuda.Stream,
    torch.cuda.Event,
    torch.cuda.CUDAGraph,
    torch.amp.GradScaler,
    torch.cuda.amp.GradScaler,
    torch.optim.Optimizer,
    torch.optim.SGD,
    sys.modules["torch.optim.optimizer"],
    nn.Module,
    dataloader,
    dataloader.DataLoader,
    dataloader._BaseDataLoaderIter,
    dataloader._SingleProcessDataLoaderIter,
    dataloader._MultiProcessingDataLoaderIter,
    fetch._BaseDatasetFetcher,
    fetch._MapDatasetFetcher,
    fetch._IterableDatasetFetcher,
    SummaryWriter,
    Image.Image,
    tqdm,
    logging.Logger,
    warnings,
]


def snapshot() -> dict[tuple[str, str], Any]:
    """Every attribute; the interpreter's own bookkeeping is left out."""
    skipped = {"__warningregistry__", "__annotations_cache__", "_filters_version", "_dynamo"}
    return {
        (f"{i} {getattr(owner, '__name__', owner)}", name): value
        for i, owner in enumerate(OWNERS)
        for name, value in vars(owner).items()
        if name not in skipped
    }


def lists() -> dict[str, Any]:
    hooks = {
        k: dict(v) for k, v in vars(sys.modules["torch.optim.optimizer"]).items() if k.startswith("_global_optimizer")
    }
    return {
        "gc": list(gc.callbacks),
        "meta_path": list(sys.meta_path),
        "hooks": hooks,
        "filters": list(warnings.filters),
    }


def train(steps: int) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in dataloader.DataLoader(torch.utils.data.TensorDataset(torch.randn(steps, 4))):
        model(x[0]).sum().backward()
        optimizer.step()
        model.eval()
        torch.zeros(1).item()


torch.set_num_threads(1)
train(3)  # an optimizer class changes itself when it is first used
before, lists_before = snapshot(), lists()
folder = sys.argv[1]
spec = importlib.util.spec_from_file_location(
    "_flatout_attach", folder + "/__init__.py", submodule_search_locations=[folder]
)
assert spec is not None and spec.loader is not None
attach = importlib.util.module_from_spec(spec)
sys.modules["_flatout_attach"] = attach
spec.loader.exec_module(attach)
assert attach.install()
assert attach.install(), "a second install is harmless"
changed = {key for key, value in snapshot().items() if before.get(key) is not value}
print("changed", len(changed))
train(5)
attach.detach()
after, lists_after = snapshot(), lists()
for key in sorted(before.keys() | after.keys()):
    if before.get(key) is not after.get(key):
        print("NOT RESTORED", *key)
for name in lists_before:
    if lists_before[name] != lists_after[name]:
        print("NOT RESTORED", name, lists_before[name], lists_after[name])
deadline = time.monotonic() + 5
while any(t.name.startswith("flatout") for t in threading.enumerate()) and time.monotonic() < deadline:
    time.sleep(0.05)  # a sampler ends when it next wakes
print("threads", [t.name for t in threading.enumerate() if t.name.startswith("flatout")])
train(4)
print("trained on", flush=True)

"""Runs and code that have TR201, and that must stay quiet."""

from __future__ import annotations

from flatout.records.report import CopySite
from tests.cases.code import SourceCase
from tests.cases.evidence import HERE, Case, loader, on_gpu, run

_MS = {"data": 1.0, "h2d": 22.0, "forward": 30.0, "backward": 38.0, "optimizer": 8.0, "other": 1.0}
_GPU = on_gpu(util_mean=70.0, drained_share=0.4)
_SITE = CopySite(HERE, "train", 2.0, 22.0, 38.0 * 2**20, 0.0, 0.0)
_UNPINNED = (loader(pin_memory=False),)
CASES = (
    Case("finds it when images go up unpinned", run(gpu=_GPU, ms=_MS, copies=(_SITE,), loaders=_UNPINNED), found=True),
    Case(
        "quiet when the device is busy all the same",
        run(gpu=on_gpu(drained_share=0.0), ms=_MS, copies=(_SITE,), loaders=_UNPINNED),
        found=False,
    ),
    Case(
        "quiet when the copies are pinned",
        run(gpu=_GPU, ms=_MS, copies=(CopySite(HERE, "train", 2.0, 0.1, 38.0 * 2**20, 1.0, 1.0),)),
        found=False,
    ),
    Case(
        "quiet when there is little to copy",
        run(
            gpu=_GPU,
            ms={**_MS, "h2d": 0.1},
            copies=(CopySite(HERE, "train", 2.0, 0.1, 2e5, 0.0, 0.0),),
            loaders=_UNPINNED,
        ),
        found=False,
    ),
)

_STEP = """
for images, labels in loader:
    images = images.to(device, non_blocking=True)
    loss = model(images).mean()
    loss.backward()
    optimizer.step()
"""
_ON_DEVICE = """
class Images(Dataset):
    def __getitem__(self, at):
        return self.data[at].to("cuda")

loader = DataLoader(Images(), 32)
"""
SOURCE_CASES = (
    SourceCase(
        "finds it when the loader does not pin",
        "loader = DataLoader(Images(), 32, num_workers=4)  # found\n" + _STEP,
    ),
    SourceCase(
        "finds it when the loader is told not to",
        "loader = DataLoader(Images(), 32, num_workers=4, pin_memory=False)  # found\n" + _STEP,
    ),
    SourceCase(
        "finds it when a config file says so",
        {
            "train.py": "loader = DataLoader(Images(), 32, pin_memory=cfg['data']['pin_memory'])\n" + _STEP,
            "config.yaml": "data:\n  pin_memory: false  # found\n",
        },
    ),
    SourceCase(
        "finds it when a function copies each part of the batch",
        "loader = DataLoader(Images(), 32, num_workers=4)  # found\n"
        + _STEP.replace("images.to(device, non_blocking=True)", "tree_map(lambda one: one.to(device), images)"),
    ),
    SourceCase(
        "finds it when the device is named in parts",
        "loader = DataLoader(Images(), 32, num_workers=4)  # found\n"
        + _STEP.replace("to(device, non_blocking=True)", "to('cuda:{}'.format(rank))"),
    ),
    SourceCase("quiet when the samples come from a device", _ON_DEVICE + _STEP),
    SourceCase(
        "quiet when the data were put on a device",
        "data = TensorDataset(torch.from_numpy(table).to(device))\nloader = DataLoader(data, 32)\n" + _STEP,
    ),
    SourceCase(
        "quiet when the loader pins",
        "loader = DataLoader(Images(), 32, num_workers=4, pin_memory=True)\n" + _STEP,
    ),
    SourceCase(
        "quiet when pinning hangs on the machine",
        "loader = DataLoader(Images(), 32, pin_memory=torch.cuda.is_available())\n" + _STEP,
    ),
    SourceCase(
        "quiet when nothing is copied",
        "loader = DataLoader(Images(), 32)\n" + _STEP.replace("images.to(device, non_blocking=True)", "images.float()"),
    ),
)

"""Runs and code that have TR203, and that must stay quiet."""

from __future__ import annotations

from flatout.records.report import CopySite
from tests.cases.code import SourceCase
from tests.cases.evidence import HERE, Case, loader, on_gpu, run

_MS = {"data": 1.0, "h2d": 9.0, "forward": 40.0, "backward": 41.0, "optimizer": 8.0, "other": 1.0}
_GPU = on_gpu(util_mean=70.0, drained_share=0.4)
_OWN_TYPE = CopySite(HERE, "to", 12.0, 9.0, 4.2e6, 0.0, 0.0)
CASES = (
    Case(
        "finds it when a batch of the script's own type is not pinned",
        run(gpu=_GPU, ms=_MS, copies=(_OWN_TYPE,)),
        found=True,
    ),
    Case(
        "quiet when the loader was not asked to pin",
        run(gpu=_GPU, ms=_MS, copies=(_OWN_TYPE,), loaders=(loader(pin_memory=False),)),
        found=False,
    ),
    Case(
        "quiet when the batch is pinned and a scalar beside it is not",
        run(
            gpu=_GPU,
            ms=_MS,
            copies=(
                CopySite(HERE, "train", 2.0, 8.9, 4.2e6, 1.0, 1.0),
                CopySite(HERE, "train", 1.0, 0.1, 4.0, 0.0, 0.0),
            ),
        ),
        found=False,
    ),
    Case(
        "quiet when the device is busy all the same",
        run(gpu=on_gpu(drained_share=0.0), ms=_MS, copies=(_OWN_TYPE,)),
        found=False,
    ),
)

_STEP = """
for batch in loader:
    %s
    loss = model(batch)
    loss.backward()
    optimizer.step()
"""
_OWN = """
class Views:
    def __init__(self, samples):
        self.images = torch.stack(samples)
%s
    def to(self, device):
        self.images = self.images.to(device, non_blocking=True)
        return self

def collate(samples):
    return Views(samples)

"""
_LOADER = "loader = DataLoader(Cameras(), batch_size=8, num_workers=4, collate_fn=%s, pin_memory=True)"
_MOVED = _STEP % "batch = batch.to(device)"
_PINNED = "\n    def pin_memory(self):\n        self.images = self.images.pin_memory()\n        return self\n"
SOURCE_CASES = (
    SourceCase(
        "finds it when the batch is of a class of its own", _OWN % "" + _LOADER % "collate" + "  # found\n" + _MOVED
    ),
    SourceCase("finds it when the class itself collates", _OWN % "" + _LOADER % "Views" + "  # found\n" + _MOVED),
    SourceCase(
        "finds it when the collate function hands its only sample on, and says of which class that is",
        _OWN.replace("collate(samples):", "collate(samples: list[Views]) -> Views:").replace(
            "Views(samples)", "samples[0]"
        )
        % ""
        + _LOADER % "collate"
        + "  # found\n"
        + _MOVED,
    ),
    SourceCase(
        "finds it when the batch is changed before the copy",
        _LOADER.replace("collate_fn=%s, ", "") + _STEP % "batch = (batch / 255.0).to(device)  # found",
    ),
    SourceCase("quiet when the class can be pinned", _OWN % _PINNED + _LOADER % "collate" + "\n" + _MOVED),
    SourceCase(
        "quiet when it is a kind of dict",
        _OWN.replace("class Views:", "class Views(UserDict):") % "" + _LOADER % "collate" + "\n" + _MOVED,
    ),
    SourceCase(
        "quiet when nothing is pinned",
        _OWN % "" + (_LOADER % "collate").replace("pin_memory=True", "pin_memory=False") + "\n" + _MOVED,
    ),
    SourceCase(
        "quiet when the copy comes first",
        _LOADER.replace("collate_fn=%s, ", "") + _STEP % "batch = batch.to(device, non_blocking=True) / 255.0",
    ),
)

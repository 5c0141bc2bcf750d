"""Runs and code that have IN109, and that must stay quiet."""

from __future__ import annotations

from flatout.records.ledger import Ledger, LedgerEntry
from flatout.records.report import LineCost, Location
from tests.cases.code import SourceCase, cases_in
from tests.cases.evidence import Case, loader, on_gpu, run

_SOURCE = """import numpy as np
from torch import nn

def augment(images):
    return np.fft.irfft2(np.fft.rfft2(images))

class Net(nn.Module):
    def forward(self, x):
        return self.head(x * np.sqrt(2))

def smoothed(x):
    return (x - x.mean()).relu()
"""
_FILES = {"train.py": _SOURCE}
_MS = {"data": 1.0, "h2d": 1.0, "forward": 58.0, "backward": 35.0, "optimizer": 5.0}


def _line_costs(line: int, function: str) -> tuple[LineCost, ...]:
    return (LineCost(Location("train.py", line), function, "forward", 0.4, 40.0),)


_MIXED = """import numpy as np

def mixed(images, rng):
    out = []
    for i in range(len(images)):
        other = rng.integers(len(images))
        out.append(np.maximum(images[i], images[other]))
    return np.stack(out)
"""
_BY_SAMPLE = tuple(
    LineCost(Location("train.py", line), "mixed", "forward", ms / 100, ms) for line, ms in ((6, 15.0), (7, 25.0))
)
_SEEN = tuple(
    LedgerEntry(line.location, "mixed", "forward", "python", False, line.ms, line.share, 40.0, "python")
    for line in _BY_SAMPLE
)
_DRY = on_gpu(drained_share=0.9, device_ms={"starved": 0.5, "step": 100.0, "forward": 57.0, "backward": 35.0})
CASES = (
    Case(
        "finds it when the loop augments with NumPy",
        run(ms=_MS, all_lines=_line_costs(5, "augment"), files=_FILES, loaders=(loader(num_workers=2),)),
        found=True,
    ),
    Case(
        "finds it when a GPU has nothing to do meanwhile",
        run(gpu=_DRY, ms=_MS, all_lines=_line_costs(5, "augment"), files=_FILES),
        found=True,
    ),
    Case(
        "finds it when the loop goes sample by sample, with no processor to spare for workers",
        run(
            ms=_MS,
            all_lines=_BY_SAMPLE,
            files={"train.py": _MIXED},
            ledger=Ledger(_SEEN, {"python": 0.4}),
            loaders=(loader(num_workers=0),),
            cpus=1.0,
        ),
        found=True,
    ),
    Case("quiet when the model does it", run(ms=_MS, all_lines=_line_costs(9, "forward"), files=_FILES), found=False),
    Case(
        "quiet when it is a loss in torch",
        run(ms=_MS, all_lines=_line_costs(12, "smoothed"), files=_FILES),
        found=False,
    ),
    Case("quiet when the source is gone", run(ms=_MS, all_lines=_line_costs(5, "augment")), found=False),
    Case(
        "quiet when it happens in the loader",
        run(
            ms=_MS,
            all_lines=(LineCost(Location("train.py", 5), "augment", "data", 0.4, 40.0),),
            files=_FILES,
        ),
        found=False,
    ),
)

_STEP = """
import cv2
import numpy as np
from scipy import ndimage

for batch, texts in train_loader:
    %s
    output = model(batch.to(device))
    loss = criterion(output)
    loss.backward()
    optimizer.step()
"""

_case = cases_in(_STEP)
SOURCE_CASES = (
    _case(
        "finds it when pictures are resized",
        "batch = torch.stack([as_tensor(cv2.resize(one, (224, 224))) for one in batch])  # found",
    ),
    _case("finds it when texts become tokens", "batch = tokenizer(texts, padding=True, return_tensors='pt')  # found"),
    SourceCase(
        "finds it when the loop goes over a bar",
        _STEP.replace("for batch in loader:", "bar = tqdm(loader)\nfor batch in bar:")
        % "batch = tokenizer(texts, padding=True, return_tensors='pt')  # found",
    ),
    _case("finds it when the batch goes to NumPy", "batch = torch.from_numpy(augment(batch.numpy()))  # found"),
    _case("quiet when the device does it", "batch = F.interpolate(batch.to(device), size=224)"),
    _case("quiet when results are drawn", "if step % 100 == 0:", "    cv2.imwrite(path, cv2.resize(view, (64, 64)))"),
    _case(
        "quiet when it needs what the model gave",
        "distance = ndimage.distance_transform_edt(model(batch).detach().cpu().numpy())",
    ),
    _case("quiet when a tensor is only made of an array", "batch = torch.from_numpy(batch)"),
)

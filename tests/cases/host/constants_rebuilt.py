"""Runs and code that have HO408, and that must stay quiet."""

from __future__ import annotations

from flatout.records.report import CopySite, LineCost, Location
from tests.cases.code import SourceCase
from tests.cases.evidence import Case, on_gpu, run

_SSIM = """\
import math
import torch

def window(size=11, sigma=1.5):
    line = torch.tensor([math.exp(-((x - size // 2) ** 2) / (2 * sigma**2)) for x in range(size)])
    line = line / line.sum()
    return torch.outer(line, line).expand(3, 1, size, size).contiguous()

def ssim(image, target):
    kernel = window().to(image.device)
    return torch.conv2d(image * target, kernel, groups=3).mean()
"""
_POSITIONS = """\
import torch

def forward(self, x):
    at = torch.arange(x.shape[1], device=x.device)
    total = torch.tensor(0.0)
    for part in x:
        total = total + part.sum()
    noise = torch.randn(64, 64)
    return self.embed(at) + noise + total
"""
_CACHED = _SSIM.replace("def window(", "@functools.cache\ndef window(")


def _lines(function: str, *at: tuple[int, float]) -> tuple[LineCost, ...]:
    return tuple(LineCost(Location("loss.py", line), function, "forward", ms / 100, ms) for line, ms in at)


_DRY = on_gpu(util_mean=80.0, drained_share=0.4)
_MS = {"data": 1.0, "h2d": 6.0, "forward": 45.0, "backward": 38.0, "optimizer": 9.0, "other": 1.0}
_IN_WINDOW = _lines("window", (5, 5.0), (6, 1.0), (7, 2.0))
_COPY = (
    CopySite(Location("loss.py", 10), "ssim", 1.0, 5.0, 4400.0, 0.0, 0.0),
    CopySite(Location("train.py", 9), "train", 1.0, 0.1, 2e7, 1.0, 1.0),
)
CASES = (
    Case(
        "finds it when a loss makes its window at each call and copies it",
        run(gpu=_DRY, ms=_MS, all_lines=_IN_WINDOW, copies=_COPY, files={"loss.py": _SSIM}),
        found=True,
    ),
    Case("finds it on a CPU", run(all_lines=_IN_WINDOW, files={"loss.py": _SSIM}), found=True),
    Case(
        "quiet when the values hang on the batch, on chance or on the turn before",
        run(all_lines=_lines("forward", (4, 5.0), (5, 5.0), (8, 5.0)), files={"loss.py": _POSITIONS}),
        found=False,
    ),
    Case(
        "quiet when the time is that of the convolution",
        run(all_lines=_lines("ssim", (11, 30.0)), files={"loss.py": _SSIM}),
        found=False,
    ),
    Case("quiet when a cache keeps it", run(all_lines=_IN_WINDOW, files={"loss.py": _CACHED}), found=False),
    Case(
        "quiet when it takes next to nothing",
        run(all_lines=_lines("window", (5, 0.3)), files={"loss.py": _SSIM}),
        found=False,
    ),
    Case(
        "quiet when the device is busy all the same",
        run(gpu=on_gpu(drained_share=0.0), ms=_MS, all_lines=_IN_WINDOW, copies=_COPY, files={"loss.py": _SSIM}),
        found=False,
    ),
)

_LOOP = """
import torch
from losses import ssim
model = Net().to(device)
for step, (x, y) in enumerate(loader):
    x, y = x.to(device), y.to(device)
    %s
    loss = ssim(model(x), y)
    loss.backward()
    optimizer.step()
"""


def _step(name: str, *lines: str, loss: str = "def ssim(a, b):\n    return (a - b).abs().mean()\n") -> SourceCase:
    return SourceCase(name, {"train.py": _LOOP % "\n    ".join(lines), "losses.py": loss})


_MODULE = """
import torch

class Net(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, x):
        mean = torch.tensor([0.485, 0.456, 0.406], device=x.device)  # found
        grid = torch.linspace(-1, 1, self.size).to(x.device)  # found
        at = torch.arange(self.size, device=x.device)
        return self.layer(x - mean) + grid[at]

model = Net(8).to("cuda")
for x in loader:
    model(x.to("cuda")).sum().backward()
    optimizer.step()
"""
_BANK = """
import torch

def bank(bands, bins):
    return torch.tensor([[low * bin for bin in range(bins)] for low in range(bands)])

def mel(wave):
    filters = bank(32, 129)  # found
    return wave @ filters.T

for wave in loader:
    mel(model(wave)).mean().backward()
    optimizer.step()
"""
_HELD = _SSIM.replace("kernel = window().to(image.device)", "kernel = window().to(image.device)  # found")
SOURCE_CASES = (
    _step("finds it in a loss that makes its window at each call", "pass", loss=_HELD),
    SourceCase("finds it in the forward pass of the model", _MODULE),
    SourceCase("finds it in a filter bank that is computed at each call", _BANK),
    _step("finds it in the loop itself", "weights = torch.tensor([0.1, 0.9]).cuda()  # found"),
    _step("finds it when a number is made a tensor", "one = torch.tensor(1.0, device=device)  # found"),
    _step(
        "quiet when a branch decides",
        "ok = True",
        "if bad(x):",
        "    ok = False",
        "t = torch.tensor(ok, device=device)",
    ),
    _step(
        "quiet when a cache keeps it",
        "pass",
        loss=_CACHED.replace("kernel = window().to(image.device)", "kernel = window()"),
    ),
    _step("finds it when only its size hangs on the batch", "ones = torch.ones(x.size(0), 1).to(device)  # found"),
    _step("finds it when a tensor says where to", "w = x.new_tensor([0.1, 0.9])  # found"),
    _step("finds it when it goes where a tensor is", "w = torch.tensor([0.1, 0.9]).to(x)  # found"),
    _step("quiet when it hangs on the batch", "w = torch.tensor(batch['sizes']).to(device)"),
    _step("quiet when a tensor gives but its type", "w = x.new_zeros(3)", "w = x.new_tensor(batch['sizes'])"),
    _step("quiet when it is made on the device", "at = torch.arange(9, device=device)"),
    _step("quiet when it is made by chance", "noise = torch.randn(4, 4).to(device)"),
    _step("quiet when it is done now and then", "if step % 100 == 0:", "    w = torch.tensor([0.1, 0.9]).cuda()"),
    SourceCase("quiet when it is made before the loop", "w = torch.tensor([0.1]).cuda()\n" + _LOOP % "pass"),
)

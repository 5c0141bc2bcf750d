"""The same constants are built anew in every step.

What it is: the training step makes tensors that come out the same each time: a filter's kernel, a window, a grid of
coordinates, mean and deviation, class weights, made with `torch.tensor([...])`, `torch.arange(n)`, `torch.linspace`,
`torch.from_numpy(np.array(...))`, and often moved to the device with `.to(device)` as well.

Why the GPU idles: Python builds them element by element, each little operation is a launch, and a copy from pageable
memory waits until the device has come that far in its queue.

How it shows in a run: host time, or copies to the device, at lines that hang on literals and settings alone.

How it shows in source: a statement that every step runs, which makes a tensor of literals and settings alone and
copies it to the device: `torch.tensor([...], device=...)`, `x.new_tensor([...])`, `make_window(11).to(x.device)`; also
`torch.arange(n).to(device)`, which could be made there. What is made on the device, such as `torch.arange(9,
device=...)`, is one launch and is left alone. Or a function of your own that computes such a tensor, called in every
step.

The fix: build them once. In a module: `self.register_buffer("window", make_window(), persistent=False)` in
`__init__`; in a function: `functools.cache` on the function that makes it, with the device as an argument; what is
cheap to make on the device is made there: `torch.arange(n, device=x.device)`.

What to expect: the time at these lines goes, and with it the waits of their copies as far as nothing else waits.

When it is fine: less than 1% of the step, or the device is busy all the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flatout.problems.cases import Case, SourceCase, on_gpu, run
from flatout.problems.found import FoundInRun, FoundInSource, step_of
from flatout.problems.host.constant_statements import ConstantStatement, find_constants
from flatout.problems.host.rebuilt_constants import Rebuilt, find_rebuilt
from flatout.problems.hot_lines import host_lines, named
from flatout.problems.prediction import by_sparing_host
from flatout.records.evidence import Evidence
from flatout.records.message import Message, message
from flatout.records.report import CopySite, LineCost, Location
from flatout.records.source import Fix
from flatout.source.code import Code, call_path
from flatout.source.syntax.edits import replace_node, source_text
from flatout.source.syntax.nodes import short_text

CODE = "HO408"
REMEDY = "memo.function"
_WORTH = 0.01
# Copies less often than this are not of every step.
_EACH_STEP = 0.5


@dataclass(frozen=True, slots=True)
class _Cost:
    """Milliseconds a step at one line of a statement that builds a constant."""

    location: Location
    host_ms: float
    copy_ms: float

    @property
    def ms(self) -> float:
        return self.host_ms + self.copy_ms


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    costs = _costs(run, find_constants(tuple(sorted(run.files.items()))))
    host_ms = sum(cost.host_ms for cost in costs)
    # Never more than the phase, which leaves evaluations out.
    copy_ms = min(sum(cost.copy_ms for cost in costs), run.phase("h2d").ms)
    if host_ms + copy_ms < _WORTH * run.step_ms:
        return
    method = message("ho408.gain", host_ms=host_ms, copy_ms=copy_ms, step_ms=run.step_ms)
    gain = by_sparing_host(run, host_ms + copy_ms, method)
    if gain is None:
        return
    dearest = max(costs, key=lambda cost: cost.ms)
    lines = ", ".join(f"{named(run, cost.location)} {cost.ms:.2g} ms" for cost in costs[:5])
    yield FoundInRun(
        location=dearest.location,
        evidence={
            "built_ms_per_step": round(host_ms, 3),
            "copied_ms_per_step": round(copy_ms, 3),
            "lines": lines,
        },
        cause=message("ho408.cause", ms=host_ms + copy_ms, step_ms=run.step_ms, line=named(run, dearest.location)),
        change=message("ho408.change", lines=lines),
        predicted_gain=gain,
    )


def _costs(run: Evidence, built: tuple[ConstantStatement, ...]) -> list[_Cost]:
    """The dearest first."""
    whole = [one for one in built if one.whole]
    host: dict[Location, float] = {}
    for line in host_lines(run):
        if _is_in(whole, line.location):
            host[line.location] = host.get(line.location, 0.0) + line.ms
    copied: dict[Location, float] = {}
    for site in run.report.copies:
        if site.per_step >= _EACH_STEP and _is_in(built, site.location):
            copied[site.location] = copied.get(site.location, 0.0) + site.ms
    costs = [_Cost(place, host.get(place, 0.0), copied.get(place, 0.0)) for place in {**host, **copied}]
    return sorted(costs, key=lambda cost: -cost.ms)


def _is_in(built: Sequence[ConstantStatement], place: Location) -> bool:
    return any(one.holds(place.file, place.line) for one in built)


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


def in_source(code: Code) -> Iterator[FoundInSource]:
    for one in find_rebuilt(code):
        way = "sizes" if one.is_of_sizes else "copied" if one.is_copied else "computed"
        yield FoundInSource(
            place=one.region.module.place(one.node),
            cause=message(f"ho408.source_cause_{way}", code=short_text(one.node, 40), step=step_of(one.region)),
            change=_change(one),
            related=call_path(one.region),
            fix=_fix(one) if one.is_number and one.made is one.node else None,
        )


def _change(one: Rebuilt) -> Message:
    if one.is_of_sizes:
        return message("ho408.source_change_sizes")
    return message("ho408.source_change_number" if one.is_number else "ho408.source_change")


def _fix(one: Rebuilt) -> Fix | None:
    """The same value, type and place, without the copy."""
    module, func, number = one.region.module, one.node.func, one.node.args[0]
    if not isinstance(func, ast.Attribute):
        return None
    edits = (
        replace_node(module, func, f"{source_text(module, func.value)}.full"),
        replace_node(module, number, f"(), {source_text(module, number)}"),
    )
    return Fix("filled on the device", edits, is_safe=True)


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

"""Runs and code that have HO402, and that must stay quiet."""

from __future__ import annotations

from flatout.problems.host.python_loop import REMEDY
from flatout.records.report import LineCost, Location, RemedyState
from tests.cases.code import SourceCase
from tests.cases.evidence import Case, on_gpu, run

_TARGETS = """\
def targets(points, shape):
    out = torch.zeros(shape)
    for i in range(len(points)):
        for row in range(shape[2]):
            for column in range(shape[3]):
                distance = (row - points[i, 1]) ** 2 + (column - points[i, 0]) ** 2
                out[i, 0, row, column] = torch.exp(-distance)
    return out

for batch in loader:
    loss = criterion(model(batch), targets(batch, shape))
    loss.backward()
    optimizer.step()
"""
_BLOCKS = """\
def forward(self, x):
    for block in self.blocks:
        x = block(x)
    return x
"""
_RECURRENT = """\
def forward(self, x):
    for t in range(x.shape[1]):
        h = self.cell(x[:, t], h)
    return h
"""


def _lines(share: float, *numbers: int, ms: float, function: str) -> tuple[LineCost, ...]:
    each = len(numbers)
    return tuple(LineCost(Location("train.py", n), function, "forward", share / each, ms / each) for n in numbers)


_LOOPING_GPU = on_gpu(starved_share=0.0, util_mean=20.0, sm_active=0.01, drained_share=0.9, device_ms={"step": 1098.0})
_SLOW = {"data": 0.3, "h2d": 2.0, "forward": 1030.0, "backward": 40.0, "optimizer": 14.0, "sync": 4.0, "other": 7.7}
CASES = (
    Case(
        "finds it when targets are drawn cell by cell on a GPU",
        run(
            gpu=_LOOPING_GPU,
            ms=_SLOW,
            all_lines=_lines(0.9, 6, 7, ms=990.0, function="targets"),
            files={"train.py": _TARGETS},
        ),
        found=True,
    ),
    Case(
        "finds it on a CPU",
        run(
            ms={"forward": 70.0, "backward": 22.0, "optimizer": 8.0},
            all_lines=_lines(0.6, 6, 7, ms=60.0, function="targets"),
            files={"train.py": _TARGETS},
        ),
        found=True,
    ),
    Case(
        "quiet when its results are kept",
        run(
            ms={"forward": 70.0, "backward": 22.0, "optimizer": 8.0},
            all_lines=_lines(0.6, 6, 7, ms=60.0, function="targets"),
            files={"train.py": _TARGETS},
            remedies=(RemedyState(REMEDY, "lossless", "__main__:targets", "applied", live={"hits": 30}),),
        ),
        found=False,
    ),
    Case(
        "finds it while nothing that was kept has come again",
        run(
            ms={"forward": 70.0, "backward": 22.0, "optimizer": 8.0},
            all_lines=_lines(0.6, 6, 7, ms=60.0, function="targets"),
            files={"train.py": _TARGETS},
            remedies=(RemedyState(REMEDY, "lossless", "__main__:targets", "applied", live={"hits": 0}),),
        ),
        found=True,
    ),
    Case(
        "quiet when the loop goes over a model's blocks",
        run(all_lines=_lines(0.3, 3, ms=30.0, function="forward"), files={"train.py": _BLOCKS}),
        found=False,
    ),
    Case(
        "quiet when each turn needs the one before",
        run(all_lines=_lines(0.3, 3, ms=30.0, function="forward"), files={"train.py": _RECURRENT}),
        found=False,
    ),
    Case(
        "quiet when only the training loop itself is around the line",
        run(all_lines=_lines(0.3, 11, ms=30.0, function="<module>"), files={"train.py": _TARGETS}),
        found=False,
    ),
    Case(
        "quiet when the loop is small",
        run(all_lines=_lines(0.02, 6, 7, ms=2.0, function="targets"), files={"train.py": _TARGETS}),
        found=False,
    ),
    Case(
        "quiet when the device is never short of work",
        run(gpu=on_gpu(), all_lines=_lines(0.2, 6, ms=20.0, function="targets"), files={"train.py": _TARGETS}),
        found=False,
    ),
)

SOURCE_CASES = (
    SourceCase(
        "finds it when targets are drawn cell by cell",
        _TARGETS.replace("range(len(points)):", "range(len(points)):  # found"),
    ),
    SourceCase("quiet when the loop goes over blocks", _BLOCKS),
    SourceCase("quiet when nothing trains", _TARGETS.split("for batch")[0]),
)

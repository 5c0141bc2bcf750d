"""Runs and code that have RA904, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import GpuState
from tests.cases.code import SourceCase
from tests.cases.evidence import HERE, Case, on_gpu, run


def _gpus(*util: float) -> tuple[GpuState, ...]:
    return tuple(GpuState(number, util_percent=percent) for number, percent in enumerate(util))


CASES = (
    Case(
        "finds it when four GPUs share one process",
        run(gpu=on_gpu(), gpus=_gpus(60.0, 35.0, 35.0, 36.0), data_parallel_at=HERE),
        found=True,
    ),
    Case(
        "quiet when only one GPU is used",
        run(gpu=on_gpu(), gpus=_gpus(60.0), data_parallel_at=HERE),
        found=False,
    ),
    Case(
        "quiet when a model is spread over GPUs by hand",
        run(gpu=on_gpu(), gpus=_gpus(60.0, 35.0)),
        found=False,
    ),
)

_LOOP = """
for images, labels in loader:
    loss = criterion(model(images.cuda()), labels.cuda())
    loss.backward()
    optimizer.step()
"""
SOURCE_CASES = (
    SourceCase("finds it around the model", "model = torch.nn.DataParallel(Net()).cuda()  # found\n" + _LOOP),
    SourceCase(
        "finds it where there are several GPUs",
        "from torch.nn import DataParallel\nif torch.cuda.device_count() > 1:\n"
        "    model = DataParallel(model, device_ids=gpus)  # found\n" + _LOOP,
    ),
    SourceCase(
        "quiet when each GPU has its process",
        "model = nn.parallel.DistributedDataParallel(Net().cuda(), device_ids=[rank])\n" + _LOOP,
    ),
    SourceCase("quiet on one GPU", "model = nn.DataParallel(Net(), device_ids=[0])\n" + _LOOP),
    SourceCase(
        "quiet when it evaluates",
        "def evaluate(model):\n    model = nn.DataParallel(model)\n\nscorer = nn.DataParallel(Scorer()).eval()\n"
        + _LOOP,
    ),
    SourceCase("quiet when it is only asked for", "is_wrapped = isinstance(model, nn.DataParallel)\n" + _LOOP),
    SourceCase("quiet when nothing trains", "model = nn.DataParallel(Net())\nprint(model(x))\n"),
)

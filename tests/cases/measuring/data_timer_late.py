"""Code that has MS001, and that must stay quiet."""

from __future__ import annotations

from tests.cases.code import SourceCase, cases_in

_LOOP = """
import time

def train(model, loader, device):
    end = time.time()
    for step, (x, y) in enumerate(loader):
        %s
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        end = time.time()
"""
_step = cases_in(_LOOP)
SOURCE_CASES = (
    _step(
        "finds it when the copy alone is measured",
        "start = time.time()",
        "x, y = x.to(device), y.to(device)",
        "data_time = time.time() - start  # found",
    ),
    _step(
        "finds it when a meter gets next to nothing",
        "end = time.time()",
        "data_time.update(time.time() - end)  # found",
    ),
    _step(
        "finds it when two readings are kept",
        "t0 = time.perf_counter()",
        "x = x.cuda()",
        "t1 = time.perf_counter()",
        'times["data"] += t1 - t0  # found',
    ),
    _step("quiet when it begins before the fetch", "data_time.update(time.time() - end)", "x = x.to(device)"),
    _step(
        "quiet when it says that it is the copy",
        "start = time.time()",
        "x = x.to(device)",
        "transfer_time = time.time() - start",
    ),
    _step(
        "quiet when the step is measured", "start = time.time()", "out = model(x)", "forward_time = time.time() - start"
    ),
    _step(
        "quiet when a batch is fetched inside",
        "start = time.time()",
        "more = next(batches)",
        "data_time = time.time() - start",
    ),
    SourceCase(
        "quiet when the body fetches",
        "import time\nfor step in range(100):\n    start = time.time()\n    x = next(batches)\n"
        "    data_time = time.time() - start\n    model(x).backward()\n    optimizer.step()\n",
    ),
)

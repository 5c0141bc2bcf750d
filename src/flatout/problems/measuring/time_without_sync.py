"""A part of the step is timed while the device still works on it.

What it is: the clock is read before and after forward, backward or the optimizer's step, with nothing that waits for
the device between. These calls return when their work is queued, so the time is that of the launches.

Why the GPU idles: it need not; but the figures point at the wrong part. Work of one part is waited for in another: the
first that reads a result (`loss.item()`) seems to take the time of all.

How it shows in source: two readings of the clock in one training step on a GPU, work for the device between them, no
synchronisation, event or reading of a result; not where the whole step is timed and nothing in it waits.

The fix: `torch.cuda.Event(enable_timing=True)` recorded before and after, `elapsed_time` asked for some steps later;
or, while searching only, `torch.cuda.synchronize()` before each reading. `flatout run` does without either.

What to expect: nothing gets faster; the figures tell the truth. A synchronisation that is left in costs time.

When it is fine: the launches are what is to be measured.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.cases import SourceCase
from flatout.problems.found import FoundInSource
from flatout.records.source import Related
from flatout.source.code import Code
from flatout.source.unsynced import unsynced_in

CODE = "MS002"
TITLE = "A part of the step is timed while the device works on it"


def in_source(code: Code) -> Iterator[FoundInSource]:
    seen: set[tuple[str, int]] = set()
    for one in unsynced_in(code):
        place = one.region.module.place(one.ends)
        if (place.file, place.line) in seen:
            continue
        seen.add((place.file, place.line))
        yield FoundInSource(
            place=place,
            cause="nothing waits for the device before the clock is read: this is the time of the launches",
            change="torch.cuda.Event(enable_timing=True) around it; while searching, synchronize before each reading",
            severity="low",
            related=(Related(one.region.module.place(one.begins), "the clock starts here"),),
        )


_LOOP = """
import time

def train(model, loader):
    model = model.cuda()
    end = time.time()
    for step, (x, y) in enumerate(loader):
        x, y = x.cuda(), y.cuda()
        %s
        optimizer.step()
        total += loss.item()
        batch_time.update(time.time() - end)
        end = time.time()

def advance(model, x, y):
    loss = criterion(model(x), y)
    loss.backward()
    return loss
"""
_WHOLE = """
import time
for x, y in loader:
    start = time.time()
    loss = criterion(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
    step_time.update(time.time() - start)
"""


def _body(name: str, *lines: str) -> SourceCase:
    return SourceCase(name, _LOOP % "\n        ".join(lines))


SOURCE_CASES = (
    _body(
        "finds it around forward and backward",
        "start = time.perf_counter()",
        "loss = criterion(model(x), y)",
        "forward_time = time.perf_counter() - start  # found",
        "start = time.perf_counter()",
        "loss.backward()",
        "backward_time = time.perf_counter() - start  # found",
    ),
    _body(
        "finds it when two readings are kept",
        "t0 = time.time()",
        "loss = criterion(model(x), y)",
        "t1 = time.time()",
        "loss.backward()",
        "meters.update(forward=t1 - t0)  # found",
    ),
    _body(
        "finds it when a helper steps, and it is shown seldom",
        "start = time.time()",
        "loss = advance(model, x, y)",
        "if step % 100 == 0:",
        "    print(time.time() - start)  # found",
    ),
    _body(
        "finds it when times are added up",
        "t0 = time.time()",
        "loss = criterion(model(x), y)",
        "t1 = time.time()",
        "loss.backward()",
        "forward_time = forward_time + t1 - t0  # found",
    ),
    _body("quiet when the whole turn is measured", "loss = criterion(model(x), y)", "loss.backward()"),
    _body(
        "quiet when it waits before the clock is read",
        "start = time.time()",
        "loss = criterion(model(x), y)",
        "torch.cuda.synchronize()",
        "forward_time = time.time() - start",
        "loss.backward()",
    ),
    _body(
        "quiet when a result is read inside",
        "start = time.time()",
        "loss = criterion(model(x), y)",
        "losses.append(loss.item())",
        "forward_time = time.time() - start",
        "loss.backward()",
    ),
    _body(
        "quiet when nothing is launched inside",
        "start = time.time()",
        "names = [tidy(name) for name in list(loader.names)]",
        "tidy_time = time.time() - start",
        "loss = criterion(model(x), y)",
        "loss.backward()",
    ),
    _body(
        "quiet when a scaler looks at the gradients",
        "start = time.time()",
        "loss = criterion(model(x), y)",
        "scaler.scale(loss).backward()",
        "scaler.step(optimizer)",
        "step_time = time.time() - start",
    ),
    _body(
        "quiet when it asks whether time is up",
        "loss = criterion(model(x), y)",
        "loss.backward()",
        "if time.time() - end > 60:",
        "    break",
    ),
    SourceCase("quiet when the whole step is measured and nothing waits", _WHOLE),
    SourceCase(
        "quiet on a CPU",
        (_WHOLE + "    total += loss.item()\n").replace(".cuda()", ""),
    ),
)

"""Code that has MS002, and that must stay quiet."""

from __future__ import annotations

from tests.cases.code import SourceCase, cases_in

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
_step = cases_in(_LOOP)
SOURCE_CASES = (
    _step(
        "finds it around forward and backward",
        "start = time.perf_counter()",
        "loss = criterion(model(x), y)",
        "forward_time = time.perf_counter() - start  # found",
        "start = time.perf_counter()",
        "loss.backward()",
        "backward_time = time.perf_counter() - start  # found",
    ),
    _step(
        "finds it when two readings are kept",
        "t0 = time.time()",
        "loss = criterion(model(x), y)",
        "t1 = time.time()",
        "loss.backward()",
        "meters.update(forward=t1 - t0)  # found",
    ),
    _step(
        "finds it when a helper steps, and it is shown seldom",
        "start = time.time()",
        "loss = advance(model, x, y)",
        "if step % 100 == 0:",
        "    print(time.time() - start)  # found",
    ),
    _step(
        "finds it when times are added up",
        "t0 = time.time()",
        "loss = criterion(model(x), y)",
        "t1 = time.time()",
        "loss.backward()",
        "forward_time = forward_time + t1 - t0  # found",
    ),
    _step("quiet when the whole turn is measured", "loss = criterion(model(x), y)", "loss.backward()"),
    _step(
        "quiet when it waits before the clock is read",
        "start = time.time()",
        "loss = criterion(model(x), y)",
        "torch.cuda.synchronize()",
        "forward_time = time.time() - start",
        "loss.backward()",
    ),
    _step(
        "quiet when a result is read inside",
        "start = time.time()",
        "loss = criterion(model(x), y)",
        "losses.append(loss.item())",
        "forward_time = time.time() - start",
        "loss.backward()",
    ),
    _step(
        "quiet when nothing is launched inside",
        "start = time.time()",
        "names = [tidy(name) for name in list(loader.names)]",
        "tidy_time = time.time() - start",
        "loss = criterion(model(x), y)",
        "loss.backward()",
    ),
    _step(
        "quiet when a scaler looks at the gradients",
        "start = time.time()",
        "loss = criterion(model(x), y)",
        "scaler.scale(loss).backward()",
        "scaler.step(optimizer)",
        "step_time = time.time() - start",
    ),
    _step(
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

"""The step waits for somebody else.

What it is: a call in the training loop that blocks until a viewer, a socket, a process, a person or a clock lets it
go: `recv`, `accept`, `sleep`, `input`, a web request, `psutil.cpu_percent(interval=...)`.

Why the GPU idles: while the training thread is blocked nothing is launched.

How it shows in a run: host time under a line that calls such a function, outside of the wait for a batch.

The fix: take it off the training thread. A viewer: poll with `select(..., 0)` or a non-blocking socket and answer
every hundredth step, or switch it off. Requests and subprocesses: a thread of their own. Sleeps: delete them.

What to expect: the wait goes as a whole, unless the device computes meanwhile.

When it is fine: while you look at the viewer, or once in many steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from flatout.problems.cases import HERE, Case, on_gpu, run
from flatout.problems.found import FoundInRun
from flatout.problems.hot_lines import host_lines, text_at
from flatout.problems.prediction import by_sparing_host
from flatout.records.evidence import Evidence
from flatout.records.report import LineCost, Location

CODE = "SY305"
TITLE = "The step waits for somebody else"
_BLOCKS = re.compile(
    r"\.(recv|recv_into|recvfrom|recv_json|recv_pyobj|recv_string|recv_multipart|accept|readline|urlopen|communicate)\("
    r"|\bsleep\(|\binput\(|\bselect\.select\(|\.select\(timeout|\brequests\.\w+\(|\burlopen\(|\bos\.system\("
    r"|\bsubprocess\.(run|call|check_output|check_call|getoutput)\(|\bcpu_percent\([^)]*interval|\bwaitpid\("
)
_POLLS = re.compile(r"select\.select\([^)]*,\s*0(\.0)?\s*\)|cpu_percent\(\s*(interval\s*=\s*)?(None|0)\s*\)|sleep\(0\)")
_WORTH = 0.02


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    waits = [line for line in host_lines(run) if _is_blocking(text_at(run, line.location))]
    wait_ms = sum(line.ms for line in waits)
    if not waits or wait_ms < _WORTH * run.step_ms:
        return
    words = f"{wait_ms:.3g} of {run.step_ms:.3g} ms go by in a blocking call"
    gain = by_sparing_host(run, wait_ms, words)
    if gain is None:
        return
    dearest = waits[0]
    said = text_at(run, dearest.location)
    yield FoundInRun(
        location=dearest.location,
        evidence={"wait_ms_per_step": round(wait_ms, 2), "call": said[:80], "function": dearest.function},
        cause=f"the training thread is held up in {dearest.function}, {wait_ms:.3g} of each {run.step_ms:.3g} ms step",
        change="take the call off the training thread, or poll without waiting every hundredth step",
        predicted_gain=gain,
    )


def _is_blocking(text: str) -> bool:
    return not text.startswith("#") and bool(_BLOCKS.search(text)) and not _POLLS.search(text)


def _line(phase: str, ms: float) -> tuple[LineCost, ...]:
    return (LineCost(Location(HERE.file, HERE.line), "receive", phase, ms / 100, ms),)


_MS = {"data": 1.0, "forward": 30.0, "backward": 25.0, "optimizer": 5.0, "other": 39.0}
_RECEIVE = {(HERE.file, HERE.line): "part = connection.recv(count)"}
_POLL = {(HERE.file, HERE.line): "ready = select.select([server], [], [], 0)[0]"}
CASES = (
    Case(
        "finds it when a viewer holds the step up",
        run(gpu=on_gpu(util_mean=30.0, drained_share=0.8), ms=_MS, all_lines=_line("other", 33.0), source=_RECEIVE),
        found=True,
    ),
    Case("finds it on a CPU", run(ms=_MS, all_lines=_line("other", 33.0), source=_RECEIVE), found=True),
    Case("quiet when it only polls", run(ms=_MS, all_lines=_line("other", 3.0), source=_POLL), found=False),
    Case(
        "quiet when that is how the batch is made",
        run(ms={**_MS, "data": 39.0, "other": 1.0}, all_lines=_line("data", 33.0), source=_RECEIVE),
        found=False,
    ),
    Case("quiet when the line is not known", run(ms=_MS, all_lines=_line("other", 33.0)), found=False),
)

"""The workers and their threads need more CPUs than there are.

What it is: together the workers want more CPUs than there are: each computes with several threads (by
`set_num_threads`, OpenMP, BLAS, OpenCV), or there are more busy workers than CPUs.

Why the GPU idles: the training thread that launches its kernels does not get a CPU when it needs one, and the workers'
threads wait for each other instead of producing samples.

How it shows in a run: busy workers times their threads are far more than the CPUs; the training process gets much less
CPU time than its forward, backward and optimizer phases last.

How it shows in source: `num_workers=os.cpu_count()`, or a multiple of it: all CPUs of the machine, whatever part of
them this process may use and however many ranks share them; or a hard-coded 32 or more.

The fix: one thread in a worker (`torch.set_num_threads(1)`, `cv2.setNumThreads(0)`, OMP_NUM_THREADS=1), and as many
workers as there are CPUs less one for each training process.

What to expect: the training thread runs undisturbed, and samples cost what they cost on one thread.

When it is fine: more workers than CPUs that mostly wait for files; or idle ones, which only cost memory.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from flatout.model.edits import AtLeast, BatchCosts, Edits, LessHost, Workers
from flatout.model.measured import batch_ms, ranks_here
from flatout.problems.found import FoundInRun, FoundInSource, processors_floor_ms
from flatout.problems.input.loading import BUSY, busy_share, spare_cpus
from flatout.records.evidence import Evidence, LoaderUse
from flatout.records.message import message, verbatim
from flatout.source.code import Code
from flatout.source.syntax.nodes import is_call, short_text
from flatout.source.training.loaders import loader_argument

CODE = "IN103"
REMEDY = "loader.workers"
_ACTIVE = ("forward", "backward", "optimizer", "other", "gc")
# A worker that computes with one thread has these besides it: they hand the batches over.
_HELPERS = 2
# So many times the CPUs must be wanted, and this part of the step be lost waiting for one.
_CROWDED = 1.5
_TAKEN = 0.85
_LOST = 0.1


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    use = run.training_loader
    if use is None or not use.workers or use.processes is None or not run.step_ms or spare_cpus(run) < 1:
        return
    host = run.report.host
    if host is None or host.cpu_cores is None or host.cpu_cores < _TAKEN * run.cpus:
        return  # other processes take the CPUs
    # The training thread's time in phases in which it computes, beyond the processor time its process got.
    active_ms, got = sum(run.phase(name).ms for name in _ACTIVE), run.main_cpu_share
    busy, lost_ms = busy_share(run, use) or 0.0, 0.0 if got is None else active_ms - got * run.step_ms
    seen = use.processes.threads
    threads = 1.0 if seen is None else max(1.0, seen - _HELPERS)
    wanted = ranks_here(run) * (use.workers * threads + 1)
    if busy < BUSY or wanted < _CROWDED * run.cpus or lost_ms < _LOST * run.step_ms:
        return
    workers = min(use.workers, spare_cpus(run))
    yield FoundInRun(
        location=use.made_at,
        evidence={
            "num_workers": use.workers,
            "threads_per_worker": round(threads, 1),
            "cpus": run.cpus,
            "lost_ms_per_step": round(lost_ms, 2),
            "main_cpu_share": round(run.main_cpu_share or 0.0, 3),
            "workers": workers,
        },
        cause=message(
            "in103.cause",
            workers=use.workers,
            threads=threads,
            cpus=run.cpus,
            lost_ms=lost_ms,
            step_ms=run.step_ms,
        ),
        change=message("in103.change_threads", workers=workers) if threads > 1 else verbatim(f"num_workers={workers}"),
        edits=_edits(run, use, threads, workers, lost_ms),
    )


def _edits(run: Evidence, use: LoaderUse, threads: float, workers: int, lost_ms: float) -> Edits | None:
    """Threads that wait for each other do the work of one; with one thread each all the work is still to be done."""
    now_ms = batch_ms(run, use)
    if use.processes is None or now_ms is None:
        return None
    work_ms = use.workers * use.processes.cpu_share * run.step_ms / threads
    least_ms = processors_floor_ms(run)
    fewer = (Workers(workers), BatchCosts(work_ms, now_ms), LessHost(lost_ms, is_sampled=False))
    return Edits((*fewer, AtLeast(least_ms / threads)), worst=(*fewer, AtLeast(least_ms)))


_WRITTEN_DOWN = 32


def in_source(code: Code) -> Iterator[FoundInSource]:
    for made in code.loaders:
        given = loader_argument(made, "num_workers")
        if not made.trains or given is None:
            continue
        function = made.function
        if isinstance(given, ast.Name):
            values = function.bindings.get(given.id) or function.module.body.bindings.get(given.id, [])
            given = values[0] if len(values) == 1 else given
        known = code.values.of(given, function)
        if _takes_all(given):
            place, cause = function.module.place(given), message("in103.source_all_cpus", code=short_text(given))
        elif known is not None and type(known.value) is int and known.value >= _WRITTEN_DOWN:
            place = known.place
            cause = message("in103.source_many", setting=known.how or "num_workers", value=known.value)
        else:
            continue
        yield FoundInSource(
            severity="low",
            place=place,
            cause=cause,
            change=message("in103.source_change"),
        )


def _takes_all(node: ast.expr) -> bool:
    """`cpu_count()`, `cpu_count() or 1`, twice as many; not a part of it, and not the smaller of it and something."""
    if isinstance(node, ast.BoolOp):
        return _takes_all(node.values[0])
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        number, other = (node.left, node.right) if isinstance(node.left, ast.Constant) else (node.right, node.left)
        is_more = isinstance(number, ast.Constant) and isinstance(number.value, int) and number.value >= 1
        return is_more and _takes_all(other)
    if is_call(node, "int", "max") and node.args:
        return any(_takes_all(arg) for arg in node.args)
    return is_call(node, "cpu_count") and not node.args

"""A large table gets a dense gradient though a batch picks few of its rows.

What it is: an embedding with many rows, of which a batch picks a few thousand. Its gradient is as large as the table,
zeros for all other rows, and the optimizer goes over all of it.

Why the GPU idles: it does not; it fills, adds and reads zeros. Backward fills a gradient of the table's size, the
optimizer reads and writes table, gradient and state several times.

How it shows in a run: in a window over a few steps, every operation that uses the weight picks rows of it, by far fewer
than it has, and its gradient is dense. What it takes is its part of the optimizer, by bytes, and of backward, as timed.

The fix: `nn.Embedding(..., sparse=True)`, and an optimizer that takes sparse gradients: `SGD` and `Adagrad` do,
`torch.optim.SparseAdam` takes the place of `Adam` for the table, beside another optimizer for the rest. A smaller or
hashed table helps as well.

What to expect: nearly all of the table's part of the step, as long as a batch picks less than a tenth of its rows. SGD
without momentum and Adagrad without weight decay train as before. With SparseAdam a row moves only when it is picked:
its momentum and its decay wait until then, so losses differ.

When it is fine: rows must decay, or keep moving, between the batches that pick them. Gradients are averaged or clipped
by code that cannot take sparse ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flatout.model.edits import Edit, Edits, LessHost, LessStep
from flatout.problems.compute.device import is_gpu_bound
from flatout.problems.found import KEEPS_FROM_HEALTH, FoundInRun
from flatout.problems.hot_lines import host_lines, place_name, text_at
from flatout.records.evidence import Evidence, PickedTable
from flatout.records.message import Message, message

CODE = "CO517"
# What a sparse update takes for a row, in times of what a dense one takes: it sorts the indices, gathers the rows and
# scatters them. Measured with SGD, Adagrad and Adam on a Neoverse N1: 3 to 5 with rows of 128, 7 to 10 with rows of 32.
_ROW_DEARER = (10.0, 5.0, 3.0)
# Its calls, whatever the number of rows.
_CALLS_MS = 0.5
# Sparse, the gradient of the picked rows is what backward has already, with their indices.
_LEFT_OF_BACKWARD = (0.3, 0.1, 0.0)
# How often an update goes over memory of the table's size, by its class: gradient, state and weight are read and
# written. Not fused, each operation does so. Filling the gradient is one; adding one of a second use to it, three.
_PASSES = {"SGD": 3.0}
_PASSES_FUSED, _PASSES_OTHER = 7.0, 13.0
# These take sparse gradients as they are.
_SPARSE = ("SGD", "Adagrad")


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    tables = [table for table in run.picked_tables if _ROW_DEARER[1] * table.picked_share < 1.0]
    if not tables or (run.on_gpu and not is_gpu_bound(run)):
        return
    edits = Edits.between(
        (_on_gpu if run.on_gpu else _on_cpu)(run, tables, dearer, left)
        for dearer, left in zip(_ROW_DEARER, _LEFT_OF_BACKWARD, strict=True)
    )
    saved_ms = sum(getattr(edit, "ms", 0.0) for edit in edits.likely)
    # It changes how the training is written, and with most optimizers what it does: that has to be worth it.
    if saved_ms < KEEPS_FROM_HEALTH * run.step_ms:
        return
    largest = tables[0]
    picked = sum(table.picked for table in tables) / sum(table.elements for table in tables)
    yield FoundInRun(
        location=largest.location,
        evidence={
            "tables": len(tables),
            "table_bytes": int(sum(table.bytes for table in tables)),
            "share_of_weights": round(sum(table.bytes for table in tables) / max(1.0, largest.all_bytes), 3),
            "picked_share": round(picked, 5),
            "saved_ms_per_step": round(saved_ms, 2),
            "optimizer": _name(largest),
        },
        cause=message(
            "co517.cause",
            picked=picked,
            line=place_name(largest.location),
            optimizer=_name(largest),
            ms=saved_ms,
            step_ms=run.step_ms,
        ),
        change=_change(tables),
        edits=edits,
    )


def _on_cpu(run: Evidence, tables: Sequence[PickedTable], dearer: float, left: float) -> tuple[Edit, ...]:
    optimizer_ms = run.phase("optimizer").ms
    updates_ms = sum(max(0.0, _part(table) * optimizer_ms * _spared(table, dearer) - _CALLS_MS) for table in tables)
    backward_ms = (1 - left) * sum(table.backward_ms for table in tables)
    clearing = [line for line in host_lines(run) if "zero_grad" in text_at(run, line.location)]
    share = sum(_part(table) for table in tables)
    return (
        LessHost(updates_ms, "optimizer", is_sampled=False, of_model=True),
        LessHost(backward_ms, "backward", is_sampled=False, of_model=True),
        *(LessHost(line.ms * share, line.phase) for line in clearing),
    )


def _on_gpu(run: Evidence, tables: Sequence[PickedTable], dearer: float, left: float) -> tuple[Edit, ...]:
    """How long the device takes for backward of a table is not known, but how often it goes over its bytes is."""
    gpu = run.report.gpu
    optimizer_ms = gpu.device_ms.get("optimizer", 0.0) if gpu is not None else 0.0
    ms = 0.0
    for table in tables:
        update_ms = _part(table) * optimizer_ms
        filled = table.uses + 3.0 * (table.uses - 1.0)
        ms += update_ms * _spared(table, dearer) + (1 - left) * update_ms * filled / _passes(table)
    return (LessStep(ms),)


def _part(table: PickedTable) -> float:
    """Of what the optimizers go over."""
    return table.bytes / table.all_bytes if table.all_bytes else 0.0


def _spared(table: PickedTable, dearer: float) -> float:
    return max(0.0, 1.0 - dearer * table.picked_share)


def _passes(table: PickedTable) -> float:
    return _PASSES_FUSED if table.fused else _PASSES.get(_name(table), _PASSES_OTHER)


def _name(table: PickedTable) -> str:
    return table.optimizer.rsplit(".", 1)[-1]


def _change(tables: Sequence[PickedTable]) -> Message:
    if all(_name(table) in _SPARSE for table in tables):
        return message("co517.change_decays" if any(table.decays for table in tables) else "co517.change_same")
    return message("co517.change")

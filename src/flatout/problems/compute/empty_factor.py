"""A matrix that is nearly all zeros is multiplied as a dense one.

What it is: the adjacency of a graph, a bag of words, one-hot rows: a factor of a matrix product of which a few values
in a hundred are not zero, held and multiplied with all its zeros.

Why the GPU idles: it does not; it reads zeros, multiplies by them and adds them up, in forward and in backward.

How it shows in a run: in a window over a few steps, a product has a factor that needs no gradient and is nearly all
zeros. The same product is timed dense and sparse on this machine when the run has ended. Only what is computed on the
host is looked at.

The fix: hold it sparse: `adjacency = adjacency.to_sparse_csr()` once, before the training; `adjacency @ h` stays as it
is. One-hot rows are an `nn.Embedding`, a bag of words is an `nn.EmbeddingBag`, a batch of small graphs is one list of
edges with `index_add_`.

What to expect: the difference of the two times. Losses stay the same but for rounding.

When it is fine: the matrix is made anew in each step, and making it sparse takes what it saves.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edits
from flatout.problems.compute.device import spare_passes, within_line
from flatout.problems.found import KEEPS_FROM_HEALTH, FoundInRun
from flatout.problems.hot_lines import place_name
from flatout.records.evidence import Evidence, HeavyLine
from flatout.records.message import message

CODE = "CO518"
# Of what was timed: the matrix of the run has other places filled, and may have to be made sparse in each step.
_PARTS = (0.5, 0.9, 1.0)


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    saved = [(line, _saved(run, line)) for line in run.heavy_lines if line.factors]
    saved = [(line, times) for line, times in saved if sum(times) > 0]
    forward_ms, backward_ms = (sum(times[place] for _, times in saved) for place in (0, 1))
    if not saved or forward_ms + backward_ms < KEEPS_FROM_HEALTH * run.step_ms:
        return
    worst = max(saved, key=lambda each: sum(each[1]))[0]
    factor = max(worst.factors, key=lambda each: each.size[0] * each.size[1])
    yield FoundInRun(
        location=worst.location,
        evidence={
            "density": round(factor.density, 5),
            "rows": factor.size[0],
            "columns": factor.size[1],
            "products_per_step": round(sum(each.uses for line, _ in saved for each in line.factors), 2),
            "saved_ms_per_step": round(forward_ms + backward_ms, 3),
        },
        cause=message(
            "co518.cause",
            density=factor.density,
            line=place_name(worst.location),
            ms=forward_ms + backward_ms,
            step_ms=run.step_ms,
        ),
        change=message("co518.change"),
        edits=Edits.between(spare_passes(run, part * forward_ms, part * backward_ms) for part in _PARTS),
    )


def _saved(run: Evidence, line: HeavyLine) -> tuple[float, float]:
    # Either pass multiplies with it once. What was not timed is not promised.
    once_ms = sum(
        factor.uses * max(0.0, factor.dense_ms - factor.sparse_ms) / 2
        for factor in line.factors
        if factor.dense_ms is not None and factor.sparse_ms is not None
    )
    return within_line(run, line.location, once_ms)

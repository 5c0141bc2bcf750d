"""No part of the model is compiled: every operation is a kernel of its own.

What it is: torch launches every operation of forward and backward as a kernel of its own. `torch.compile` could fuse
most of those between the large products.

Why the GPU idles: small kernels finish before the host has launched the next ones; large elementwise kernels (norms,
activations, losses) read and write all of the memory each time, and the arithmetic units wait.

How it shows in source: a training on a GPU whose files nowhere compile, script or capture anything.

The fix: `model.compile()` once the model is on its device. It works in place, so the names in a checkpoint stay as
they are; `model = torch.compile(model)` puts `_orig_mod.` before them.

What to expect: from nothing to a third of the step; more for many small operations. The first steps take a minute or
so longer. Rounding differs a little. A trial of a few hundred steps tells.

When it is fine: inputs whose shapes change all the time (each new shape recompiles), code with graph breaks in every
layer, runs of a few minutes, or a step that waits for its data anyway.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.found import FoundInSource
from flatout.records.message import message, verbatim
from flatout.source.code import Code
from flatout.source.training.jobs import text_pattern

CODE = "CO509"

_COMPILED = text_pattern(
    r"torch\.compile|torch_compile|(?<!\bre)\.compile\(|\bcompile(_model|_mode)?\b\s*[=:]|--compile|import compile\b"
    r"|torch\.jit|\bjit\.(script|trace)|dynamo|[cC][uU][dD][aA]_?[gG]raph|make_graphed|torch_tensorrt|\bthunder\b",
    "compile", "torch.jit", "jit.", "dynamo", "raph", "torch_tensorrt", "thunder",
)  # fmt: skip
# Graphs and point clouds have another shape in each batch: all would be compiled again and again.
_SHAPELESS = text_pattern(
    r"torch_geometric|\bdgl\b|torch_sparse|torch_scatter|MinkowskiEngine|spconv|pack_padded_sequence|nested_tensor",
    "torch_geometric", "dgl", "torch_s", "MinkowskiEngine", "spconv", "pack_padded_sequence", "nested_tensor",
)  # fmt: skip


def in_source(code: Code) -> Iterator[FoundInSource]:
    for job in code.jobs:
        if not job.is_on_gpu or job.is_launched or job.says(_COMPILED) or job.says(_SHAPELESS):
            continue
        if job.is_given("torch_compile", "args"):
            continue
        yield FoundInSource(
            place=job.place,
            cause=message("co509.source_cause"),
            change=verbatim("torch_compile=True") if job.kind == "transformers" else message("co509.source_change"),
            severity="hint",
        )

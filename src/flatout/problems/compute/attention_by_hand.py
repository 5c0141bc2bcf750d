"""Attention is computed as products with a softmax between, and its scores go through memory.

What it is: `softmax(q @ k.T / scale + mask) @ v`, written as such. Every operation on the scores (scale, mask, softmax,
dropout, casts) reads and writes a matrix of length times length for each head and sample, and backward does so again.

Why the GPU idles: its arithmetic waits for memory. One kernel for all of attention keeps the scores on the chip; its
memory grows with the length, not with its square.

How it shows in a run: a softmax lies between two batched products of the recorded operations, which make and take what
it is given. Their sizes tell how many bytes of scores move.

The fix: `torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=..., dropout_p=..., is_causal=...)`; for a
causal mask `is_causal=True` and no mask, so that the quickest kernel can be taken. From outside `attention.fused` does
it.

What to expect: forward and backward no longer move the scores; the longer the sequences, the more that is. Rounding
differs a little, and dropout draws other numbers.

When it is fine: short sequences, a script that needs the attention weights themselves, or a model that a compiler
fuses anyway.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edits, LessStep
from flatout.problems.compute.device import is_gpu_bound
from flatout.problems.found import FoundInRun
from flatout.records.evidence import Evidence
from flatout.records.message import message

CODE = "CO510"
REMEDY = "attention.fused"
# Of the time that the scores' bytes take at the rate of a copy: at worst, likely and at best. Kernels of small matrices
# stay behind that rate, and an attention kernel computes the scores again in backward.
_SPARED = (0.4, 0.9, 1.5)


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    gpu, attention = run.report.gpu, run.hand_attention
    if (
        gpu is None
        or gpu.ladder is None
        or attention is None
        or run.live_torch.get("compiled")
        or not is_gpu_bound(run)
    ):
        return
    moved_ms = 1e-6 * attention.bytes / gpu.ladder.roofline.memory_gb_s
    yield FoundInRun(
        evidence={
            "attentions_per_step": round(attention.calls, 1),
            "rows": attention.rows,
            "columns": attention.columns,
            "scores_gb_per_step": round(1e-9 * attention.bytes, 3),
        },
        cause=message(
            "co510.cause",
            calls=attention.calls,
            rows=attention.rows,
            columns=attention.columns,
            gb=1e-9 * attention.bytes,
        ),
        change=message("co510.change"),
        edits=Edits.between((LessStep(part * moved_ms),) for part in _SPARED),
    )

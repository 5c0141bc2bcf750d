"""The tensor cores run in TF32 where bf16 would do.

What it is: the model is trained in float32; its matrix products and convolutions already use the tensor cores, as
TF32. In bf16 they would do twice as much in the same time, and every activation would take half the memory traffic.

Why the GPU idles: it does not; it takes longer than it has to.

How it shows in a run: the device binds, the graph is float32, and the tensor cores are active for a good part of the
time.

The fix: `with torch.autocast("cuda", dtype=torch.bfloat16):` around the forward pass and the loss; no gradient scaler
is needed for bf16.

What to expect: half of the time in which tensor cores are active, at least. What else is saved in memory traffic is
not counted.

When it is fine: a loss or a custom kernel that needs float32: leave these outside the region.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.cases import Case, on_gpu, run
from flatout.problems.compute.device import bf16_factor, binds, float32_share, torch_state, trained_ms
from flatout.problems.found import FoundInRun
from flatout.problems.prediction import by_step
from flatout.records.evidence import Evidence
from flatout.records.report import Gain, GpuUse, RunFacts

CODE = "CO502"
TITLE = "The tensor cores run in TF32 where bf16 would do"
REMEDY = "precision.bf16"
COMES_FROM = ("CO501",)
_MOSTLY = 0.95
# What half the bytes make of the kernels beside the products: of those that only move memory nearly twice the speed,
# but some stay in float32 and casts are added.
_REST_FASTER = 1.5
# A step shorter than this is soon bound by its launches, which autocast only adds to.
_SHORT_MS = 10.0
_AT_WORK = 0.1


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    gpu = run.report.gpu
    if gpu is None or not binds(run) or (gpu.tensor_active or 0.0) < _AT_WORK:
        return
    if (float32_share(run) or 0.0) < _MOSTLY or torch_state(run).get("default_dtype") not in (None, "float32"):
        return
    gain = _gain(run, gpu.tensor_active or 0.0)
    if gain is None:
        return
    yield FoundInRun(
        location=None,
        evidence={
            "float32_share": round(float32_share(run) or 0.0, 3),
            "tensor_active": round(gpu.tensor_active or 0.0, 3),
            "device_ms_per_step": round(trained_ms(run), 2),
        },
        cause=f"the GPU binds, and its tensor cores work in TF32 for {gpu.tensor_active:.0%} of the time",
        change='with torch.autocast("cuda", dtype=torch.bfloat16): around forward and loss',
        predicted_gain=gain,
    )


def _gain(run: Evidence, active: float) -> Gain | None:
    factor = bf16_factor(run)
    if factor is None:
        return None
    passes_ms = trained_ms(run)
    products_ms = min(1.0, active) * passes_ms
    rest_ms = passes_ms - products_ms
    saved_ms = products_ms * (1 - 1 / factor)
    more_ms = rest_ms * (1 - 1 / _REST_FASTER)
    mid_ms = run.step_ms - (saved_ms + more_ms) * min(1.0, run.step_ms / _SHORT_MS)
    words = (
        f"products on the tensor cores ({active:.0%} of the time) get {factor:g} times faster, the rest"
        f" {_REST_FASTER:g} times by half the bytes; the host's launches were not seen to bind"
    )
    return by_step(run, run.step_ms - 0.5 * saved_ms, mid_ms, run.step_ms - passes_ms * (1 - 1 / factor), words)


def _case(name: str, found: bool, gpu: GpuUse | None = None, dtypes: dict[str, float] | None = None) -> Case:
    live = {"torch": {"matmul_precision": "high", "grad_dtypes": dtypes or {"float32": 1.0}}, "loaders": []}
    facts = RunFacts("run", ("train.py",), 0, 300, 30.0, 1, "NVIDIA H200", "2.13.0", "3.12")
    return Case(name, run(gpu=gpu or on_gpu(tensor_active=0.35), run=facts, live=live), found)


CASES = (
    _case("finds it when the tensor cores work in TF32", found=True),
    _case("quiet under autocast", found=False, dtypes={"bfloat16": 0.8, "float32": 0.2}),
    _case("quiet when the tensor cores have little to do", found=False, gpu=on_gpu(tensor_active=0.05)),
    _case("quiet when the host binds", found=False, gpu=on_gpu(tensor_active=0.35, drained_share=0.6)),
)

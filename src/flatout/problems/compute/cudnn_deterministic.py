"""Only deterministic algorithms are allowed.

What it is: `torch.backends.cudnn.deterministic` or `torch.use_deterministic_algorithms` is on, so torch may not
choose the fastest algorithm for convolutions, scatter and the like, and cudnn does not search for it.

Why the GPU idles: it does not; its kernels take longer than they have to, or have to be run one after the other.

How it shows in a run: the switch as it was in the living process, on a run that the device binds.

The fix: `torch.backends.cudnn.deterministic = False`, `torch.backends.cudnn.benchmark = True` (for inputs of the same
shape), unless every run has to give the same bits.

What to expect: it depends on the kernels the model uses. A run with the switch off tells; no gain is promised.

When it is fine: while hunting a bug, or where reproducing the very same bits is the point.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.cases import Case, on_gpu, run
from flatout.problems.compute.device import binds, torch_state
from flatout.problems.found import FoundInRun
from flatout.records.evidence import Evidence

CODE = "CO503"
TITLE = "Only deterministic algorithms are allowed"
REMEDY = "cudnn.benchmark"


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    state = torch_state(run)
    cudnn, everything = bool(state.get("cudnn_deterministic")), bool(state.get("deterministic_algorithms"))
    if not run.on_gpu or not (cudnn or everything):
        return
    switch = "torch.use_deterministic_algorithms(True)" if everything else "torch.backends.cudnn.deterministic = True"
    yield FoundInRun(
        severity="medium" if binds(run) else "low",
        location=None,
        evidence={
            "cudnn_deterministic": str(cudnn),
            "deterministic_algorithms": str(everything),
            "cudnn_benchmark": str(bool(state.get("cudnn_benchmark"))),
        },
        cause=f"{switch} is in force, so the fastest kernels are not chosen",
        change="torch.backends.cudnn.deterministic = False; torch.backends.cudnn.benchmark = True"
        + ("; torch.use_deterministic_algorithms(False)" if everything else ""),
        predicted_gain=None,
    )


def _live(**state: object) -> dict[str, object]:
    return {"torch": state, "loaders": [], "optimizers": []}


CASES = (
    Case(
        "finds it when cudnn is held to it",
        run(gpu=on_gpu(), live=_live(cudnn_deterministic=True, cudnn_benchmark=False)),
        found=True,
    ),
    Case(
        "finds it when all of torch is",
        run(gpu=on_gpu(), live=_live(cudnn_deterministic=False, deterministic_algorithms=True)),
        found=True,
    ),
    Case("quiet when it is off", run(gpu=on_gpu(), live=_live(cudnn_deterministic=False)), found=False),
    Case("quiet on a CPU", run(live=_live(cudnn_deterministic=True)), found=False),
)

"""A cudnn, TF32 or AMP setting was configured and never took effect.

What it is: the command line or a config file asks for `cudnn_benchmark`, `cudnn_deterministic`, TF32 or mixed
precision, but torch's own state in the run is another: something else (often a `set_seed`) overrules it, or nobody
reads it.

Why the GPU idles: it does not idle, it takes the slow way: kernels that were not chosen for the shape, or full
precision where the tensor cores would serve.

How it shows in a run: `torch.backends` in the living process, or the dtypes of intermediate results, against the
configured value. The finding has the table "item | configured | live".

The fix: set it where training begins, after seeding:

    torch.backends.cudnn.benchmark = config.cudnn_benchmark
    torch.backends.cuda.matmul.allow_tf32 = config.allow_tf32

What to expect: what that setting brings for this model; the findings of the compute family say how much where it can be
told from the run.

When it is fine: the run is meant to be reproducible and the config is not; then change the config.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flatout.problems.cases import Case, on_gpu, run
from flatout.problems.config.differing import Difference, evidence, in_words, place
from flatout.problems.found import FoundInRun
from flatout.records.configured import Configured, Setting, Value
from flatout.records.evidence import Evidence
from flatout.records.report import Location

CODE = "CF802"
TITLE = "A configured precision or cudnn setting has no effect"
REMEDY = None
_REDUCED = ("float16", "bfloat16", "half")
_NAMED = {"16": True, "fp16": True, "bf16": True, "float16": True, "bfloat16": True, "16-mixed": True}
_NAMED |= {"bf16-mixed": True, "32": False, "fp32": False, "float32": False, "no": False, "32-true": False}
_CHANGES = {
    "cudnn_benchmark": "torch.backends.cudnn.benchmark = {value}",
    "cudnn_deterministic": "torch.backends.cudnn.deterministic = {value}",
    "tf32": "torch.backends.cuda.matmul.allow_tf32 = {value}",
    "amp": "torch.autocast around the forward pass",
    "precision": "torch.autocast around the forward pass",
}


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    # Without a GPU scripts rightly leave all of this alone.
    live: dict[str, Any] = run.report.live.get("torch", {})  # type: ignore[assignment]
    if not run.on_gpu or not live:
        return
    found = [one for name in _CHANGES if (one := _difference(run, name, live)) is not None]
    if not found:
        return
    changes = "; ".join(dict.fromkeys(_CHANGES[one.item].format(value=one.setting.value) for one in found))
    where = next((one.setting.location for one in found if one.setting.location and one.setting.location.line), None)
    yield FoundInRun(
        severity="medium",
        location=where,
        evidence=evidence(found),
        cause=f"{in_words(found)} in the process that trains ({place(found[0].setting)})",
        change=f"{changes}, after seeding; or take it out of the config",
        predicted_gain=None,
    )


def _difference(run: Evidence, name: str, live: dict[str, Any]) -> Difference | None:
    configured = run.configured.setting(name)
    wanted = None if configured is None else _switch(name, configured.value)
    is_so = None if wanted is None else _live(name, live, wanted)
    if configured is None or is_so is None or is_so == wanted:
        return None
    return Difference(configured, is_so)


def _switch(name: str, value: Value) -> bool | None:
    if isinstance(value, bool):
        return value
    if name in ("amp", "precision"):
        return _NAMED.get(str(value).lower())
    return bool(value) if value in (0, 1) else None


def _live(name: str, live: dict[str, Any], wanted: bool) -> bool | None:
    if name == "cudnn_deterministic" and live.get("deterministic_algorithms"):
        return True
    if name == "tf32":
        known = live.get("matmul_allow_tf32"), live.get("matmul_precision")
        return None if known == (None, None) else bool(known[0]) or known[1] in ("high", "medium")
    if name in ("amp", "precision"):
        dtypes: dict[str, float] = live.get("grad_dtypes") or {}
        # Reduced precision that nobody configured is somebody's choice in the code; only the reverse is a loss.
        return None if not dtypes or not wanted else any(kind in _REDUCED for kind in dtypes)
    state = live.get(name)
    return state if isinstance(state, bool) else None


def _given(**values: Value) -> Configured:
    return Configured(
        tuple(Setting(name, f"train.{name}", value, Location("full.yaml", 33)) for name, value in values.items())
    )


def _state(**changes: Any) -> dict[str, object]:
    state = {
        "cudnn_benchmark": True,
        "cudnn_deterministic": False,
        "matmul_precision": "high",
        "matmul_allow_tf32": True,
        "grad_dtypes": {"bfloat16": 0.7, "float32": 0.3},
        **changes,
    }
    return {"torch": state, "loaders": [], "optimizers": []}


CASES = (
    Case(
        "finds it when seeding undoes cudnn_benchmark",
        run(gpu=on_gpu(), live=_state(cudnn_benchmark=False), configured=_given(cudnn_benchmark=True)),
        found=True,
    ),
    Case(
        "finds it when AMP is configured and everything is float32",
        run(gpu=on_gpu(), live=_state(grad_dtypes={"float32": 1.0}), configured=_given(amp=True, precision="bf16")),
        found=True,
    ),
    Case(
        "quiet when all took effect",
        run(gpu=on_gpu(), live=_state(), configured=_given(cudnn_benchmark=True, amp=True, tf32=True)),
        found=False,
    ),
    Case(
        "quiet when there is no GPU",
        run(live=_state(cudnn_benchmark=False), configured=_given(cudnn_benchmark=True, amp=True)),
        found=False,
    ),
    Case(
        "quiet when determinism is had by other means",
        run(
            gpu=on_gpu(),
            live=_state(deterministic_algorithms=True),
            configured=_given(cudnn_deterministic=True),
        ),
        found=False,
    ),
    Case(
        "quiet when the dtypes of the run are not known",
        run(gpu=on_gpu(), live=_state(grad_dtypes={}), configured=_given(amp=True)),
        found=False,
    ),
    Case(
        "quiet when AMP is off in the config and the code uses it",
        run(gpu=on_gpu(), live=_state(), configured=_given(amp=False, precision="fp32")),
        found=False,
    ),
)

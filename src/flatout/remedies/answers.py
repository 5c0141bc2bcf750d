"""Would a remedy help a run like this one? Yes with a value, or no, because."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ..records.message import Message, message

if TYPE_CHECKING:
    from ..records.report import RunReport

# By its name alone: remedies are loaded in the user's process, which needs no reports.
Report: TypeAlias = "RunReport"


@dataclass(frozen=True, slots=True)
class Answer:
    """`value` is what to apply, None for no."""

    value: Any
    why: Message

    @property
    def is_yes(self) -> bool:
        return self.value is not None


def yes(value: Any, why: Message) -> Answer:
    return Answer(value, why)


def no(why: Message) -> Answer:
    return Answer(None, why)


def by_finding(
    remedy: str, otherwise: Message, evidence: str | None = None, value: Any = True
) -> Callable[[Report], Answer]:
    """Yes if a finding of the run names this remedy, with the value that its evidence has under `evidence`."""

    def applies(report: Report) -> Answer:
        for finding in report.findings:
            if finding.remedy == remedy:
                found = finding.evidence.get(evidence) if evidence is not None else None
                return yes(value if found is None else found, finding.cause)
        return no(otherwise)

    return applies


def by_codes(codes: tuple[str, ...], why: Message, otherwise: Message, value: Any = True) -> Callable[[Report], Answer]:
    """Yes if the run has a finding of one of these codes."""
    return lambda report: yes(value, why) if has_finding(report, *codes) else no(otherwise)


# What remedies ask of a run's report.

_PAUSES = ("eval", "checkpoint", "logging")


def has_finding(report: Report, *codes: str) -> bool:
    return any(finding.code in codes for finding in report.findings)


def torch_state(report: Report) -> dict[str, Any]:
    state = report.live.get("torch")
    return state if isinstance(state, dict) else {}


def optimizers(report: Report) -> list[dict[str, Any]]:
    known = report.live.get("optimizers")
    return [item for item in known if isinstance(item, dict)] if isinstance(known, list) else []


def half_share(report: Report) -> float:
    dtypes = torch_state(report).get("grad_dtypes")
    return sum(float(dtypes.get(name, 0.0)) for name in ("bfloat16", "float16")) if isinstance(dtypes, dict) else 0.0


def share_of_training(report: Report, *phases: str) -> float:
    """What these take of the time, without that of evaluations, checkpoints and logging."""
    shares = {name: value.share for name, value in report.phases.items()}
    trained = 1.0 - sum(shares.get(name, 0.0) for name in _PAUSES)
    return sum(shares.get(name, 0.0) for name in phases) / trained if trained > 0 else 0.0


def ran_on_gpu(report: Report) -> bool:
    return report.run.device != "cpu"


# Tensor cores that are idle while the GPU computes in float32. No finding says so: the device is not the only limit,
# or not all of the time, so the gain cannot be predicted. A trial is cheap, for the precision can be switched during
# training.

TENSOR_CORES_IDLE = message("precision.tensor_cores_idle")
_COMPUTES, _TENSOR_CORES_REST, _MOSTLY = 0.3, 0.1, 0.9


def are_tensor_cores_idle(report: Report) -> bool:
    gpu, state = report.gpu, torch_state(report)
    if gpu is None or gpu.tensor_active is None or gpu.tensor_active > _TENSOR_CORES_REST:
        return False
    if state.get("matmul_precision") != "highest" or state.get("matmul_allow_tf32"):
        return False
    float32 = (state.get("grad_dtypes") or {}).get("float32", 0.0)
    return float(float32) >= _MOSTLY and (gpu.busy_share or 0.0) >= _COMPUTES

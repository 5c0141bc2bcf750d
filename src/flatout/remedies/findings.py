"""What remedies ask of a run's report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..records.report import RunReport


_PAUSES = ("eval", "checkpoint", "logging")


def found(report: RunReport, *codes: str) -> bool:
    return any(finding.code in codes for finding in report.findings)


def torch_state(report: RunReport) -> dict[str, Any]:
    """Torch's settings as they were in the living process."""
    state = report.live.get("torch")
    return state if isinstance(state, dict) else {}


def optimizers(report: RunReport) -> list[dict[str, Any]]:
    known = report.live.get("optimizers")
    return [one for one in known if isinstance(one, dict)] if isinstance(known, list) else []


def half_share(report: RunReport) -> float:
    """Of the results in the autograd graph, those in half precision."""
    dtypes = torch_state(report).get("grad_dtypes")
    return sum(float(dtypes.get(name, 0.0)) for name in ("bfloat16", "float16")) if isinstance(dtypes, dict) else 0.0


def share_of_training(report: RunReport, *phases: str) -> float:
    """What these take of the time, without that of evaluations, checkpoints and logging."""
    shares = {name: one.share for name, one in report.phases.items()}
    trained = 1.0 - sum(shares.get(name, 0.0) for name in _PAUSES)
    return sum(shares.get(name, 0.0) for name in phases) / trained if trained > 0 else 0.0


def on_gpu(report: RunReport) -> bool:
    return report.run.device != "cpu"

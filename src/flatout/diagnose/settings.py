"""Configured against live: every setting that somebody wrote down, and what the living objects had in its place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from flatout.records.configured import Setting
from flatout.records.evidence import Evidence
from flatout.records.timeline import SettingLine

_OF_LOADER = ("num_workers", "batch_size", "prefetch_factor", "pin_memory", "persistent_workers")
_OF_TORCH = ("cudnn_benchmark", "cudnn_deterministic", "matmul_precision", "default_dtype", "compiled")
# Under which names torch's own state answers for a setting.
_LIVE_AS = {"tf32": "matmul_allow_tf32", "compile": "compiled", "amp": "grad_dtypes", "precision": "grad_dtypes"}
_REDUCED = {"bfloat16", "float16", "bf16", "fp16", "16", "half"}


def setting_lines(run: Evidence) -> tuple[SettingLine, ...]:
    """Those that were configured first, then the others that count."""
    live = _live(run)
    lost = _lost(run)
    configured = [_line(one, live, lost) for one in run.configured.settings]
    named = {_LIVE_AS.get(one.name, one.name) for one in run.configured.settings}
    others = [
        SettingLine(name, None, None, _shown(live[name]), "not configured")
        for name in (*_OF_LOADER, *_OF_TORCH)
        if name in live and name not in named
    ]
    return (*configured, *others)


def _line(one: Setting, live: dict[str, Any], lost: set[str]) -> SettingLine:
    name = _LIVE_AS.get(one.name, one.name)
    value = live.get(name)
    if one.name in lost:
        state = "lost"
    elif _same(one.value, value):
        state = "arrived"
    else:
        # Per rank, per accumulation, or in words of its own: a difference that the catalogue finds nothing wrong with.
        state = "other"
    return SettingLine(one.name, _shown(one.value), _place(one), _shown(value) if name in live else None, state)


def _same(configured: object, live: object) -> bool:
    """Numbers by their value, but 1 is not true; precision by the types that gradients came in."""
    if isinstance(live, dict):
        is_wanted = configured is True or str(configured).lower().removesuffix("-mixed") in _REDUCED
        return is_wanted == bool(_REDUCED & set(live))
    return configured == live and isinstance(configured, bool) == isinstance(live, bool)


def _live(run: Evidence) -> dict[str, Any]:
    torch: dict[str, Any] = run.report.live.get("torch", {})  # type: ignore[assignment]
    use = run.training_loader
    loader = {} if use is None else {name: use.settings.get(name) for name in _OF_LOADER if name in use.settings}
    if use is not None and use.batch_size is not None:
        loader["batch_size"] = use.batch_size
    return {**{name: torch[name] for name in (*_OF_TORCH, *_LIVE_AS.values()) if name in torch}, **loader}


def _lost(run: Evidence) -> set[str]:
    """Settings of which a finding says that they never arrived."""
    return set(_named(run))


def _named(run: Evidence) -> Iterator[str]:
    for finding in run.report.findings:
        if finding.family == "config":
            yield from (key.removesuffix("_configured") for key in finding.evidence if key.endswith("_configured"))


def _place(one: Setting) -> str:
    if one.location is None:
        return one.written
    file = os.path.basename(one.location.file)
    return f"{file}:{one.location.line}" if one.location.line else f"{file}: {one.written}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ", ".join(
            f"{name} {share:.0%}" if isinstance(share, float) else str(name) for name, share in value.items()
        )
    return "–" if value is None else str(value)

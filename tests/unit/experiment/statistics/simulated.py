"""Trials as machines give them: noisy steps, slow drift, a luck of each process, rare long steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from flatout.records.trial import Trial

# How fast a drift is forgotten, a step.
_MEMORY = 0.95


def trial(
    rng: np.random.Generator,
    *,
    gain: float = 1.0,
    steps: int = 100,
    step_s: float = 0.05,
    noise: float = 0.06,
    drift: float = 0.01,
    process: float = 0.01,
    long_share: float = 0.01,
    batch: float = 32.0,
) -> Trial:
    """`noise` of single steps, `drift` that lasts some twenty steps, `process` for the whole trial; all relative."""
    pushes = rng.normal(0.0, drift * (1 - _MEMORY**2) ** 0.5, steps)
    fading = _MEMORY ** np.arange(steps)
    wander = np.convolve(pushes, fading)[:steps] + rng.normal(0.0, drift) * fading
    seconds = step_s / gain * np.exp(rng.normal(0.0, noise, steps) + wander + rng.normal(0.0, process))
    seconds[rng.random(steps) < long_share] *= 8.0
    return made(seconds.tolist(), batch)


def trials(rng: np.random.Generator, count: int, **more: Any) -> list[Trial]:
    return [trial(rng, **more) for _ in range(count)]


def waiting(
    rng: np.random.Generator,
    *,
    steps: int = 84,
    period: int = 8,
    jitter: int = 0,
    by_chance: bool = False,
    wait: float = 4.0,
    wait_noise: float = 0.3,
    gain: float = 1.0,
    **more: Any,
) -> Trial:
    """Every `period` steps, give or take `jitter`, one waits for so many others; it may begin anywhere in a period."""
    gaps = rng.integers(period - jitter, period + jitter + 1, steps)
    ends = np.cumsum(gaps) - rng.integers(0, period)
    waits = rng.random(steps) < 1.0 / period if by_chance else np.isin(np.arange(steps), ends)
    extra = wait * np.exp(rng.normal(-(wait_noise**2) / 2, wait_noise, steps))
    plain = trial(rng, steps=steps, gain=gain, long_share=0.0, **more)
    return made((np.array(plain.step_s) * (1.0 + waits * extra)).tolist())


def made(step_s: list[float], batch: float | None = 32.0, **more: Any) -> Trial:
    samples = (batch,) * len(step_s) if batch is not None else ()
    fields: dict[str, Any] = {"ending": "stopped", "step_s": tuple(step_s), "samples": samples}
    return Trial("as it is", {}, **{**fields, **more})


def failed(ending: str, why: str = "") -> Trial:
    return made([], ending=ending, why=why)

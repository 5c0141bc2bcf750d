"""Code that has CF804, and that must stay quiet."""

from __future__ import annotations

from tests.cases.code import SourceCase

_LOOP = """
for batch in loader:
    loss = model(batch.cuda()).mean()
    (loss * scale).backward()
    if CASE
    optimizer.step()
"""
SOURCE_CASES = (
    SourceCase(
        "finds it when a NaN doubles the scale",
        _LOOP.replace("CASE", "torch.isnan(loss):\n        scale *= 2.0  # found\n        continue"),
    ),
    SourceCase(
        "finds it when the scaler is given twice its scale",
        _LOOP.replace("CASE", "has_overflow(model):\n        scaler.update(scaler.get_scale() * 2)  # found"),
    ),
    SourceCase(
        "finds it in the branch of what is not finite",
        "class Scaler:\n    def step(self):\n        if torch.isfinite(self.norm).all():\n            self.good += 1\n"
        "        else:\n            self.loss_scale = min(self.loss_scale * 2, 2**24)  # found\n",
    ),
    SourceCase("finds it when the factors are swapped", "s = GradScaler(growth_factor=0.5)  # found\n"),
    SourceCase(
        "finds it in a comment of a config",
        {"c.yaml": "fp16:\n  loss_scale: 512  # increase loss_scale if NaN  # found\n"},
    ),
    SourceCase(
        "quiet when an overflow halves the scale and good steps double it",
        _LOOP.replace(
            "CASE",
            "overflow:\n        scale /= 2\n    elif good > 2000:\n        scale *= 2\n"
            "    if not overflow:\n        scale *= 1.5",
        ),
    ),
    SourceCase(
        "quiet when the last overflow is long ago",
        _LOOP.replace("CASE", "(step - self.last_overflow) % 2000 == 0:\n        scale *= 2"),
    ),
    SourceCase(
        "quiet when it is raised for underflow",
        _LOOP.replace("CASE", "underflow or grad_is_zero:\n        scale *= 2  # raise the scale, not for NaN"),
    ),
    SourceCase("quiet when the scaler is as usual", "s = GradScaler(growth_factor=2.0, backoff_factor=0.5)\n"),
    SourceCase(
        "quiet when a comment says the opposite",
        {"c.yaml": "loss_scale: 512  # NaN: lower it, a larger scale overflows\n"},
    ),
)

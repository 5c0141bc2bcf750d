"""What a proof says, in Chinese, as far as its record holds the figures; None where it holds only the English words."""

from __future__ import annotations

from flatout.records.proof import Ceiling, Envelope, Identity, MetricVerdict

_ALONE = {"compute": "仅设备", "feed": "仅加载器"}
_UNITS = {"sample": "样本/秒", "step": "步/秒"}


def identity_in_chinese(one: Identity) -> str | None:
    if one.verdict in ("not comparable", "alike"):
        return None
    if one.verdict == "identical":
        weights = "训练后的权重也一致" if one.weights_equal else "权重未比较"
        return f"{one.steps} 步的损失逐位一致，{weights}"
    if one.first_step is None or one.values is None:
        return f"{one.steps} 步的损失逐位一致，但训练后的权重不同"
    left, right = (float.fromhex(value) for value in one.values)
    return f"损失从第 {one.first_step} 步起不同：原脚本 {left!r}，使用措施后 {right!r}"


def envelope_in_chinese(one: Envelope) -> str | None:
    if one.verdict != "inside" or one.least_seen is None:
        return None
    if not one.farthest:
        return "损失完全相同"
    said = f"{one.steps} 步内损失保持在脚本自身的波动范围内；小于 {100 * one.least_seen:.1f}% 的偏移无法察觉"
    return f"{said}，对照为权重按其舍入幅度扰动一次的试验" if one.nudged_by else said


def metric_in_chinese(one: MetricVerdict) -> str | None:
    if one.verdict != "inside" or one.before is None or one.after is None or one.least_seen is None:
        return None
    if not one.least_seen and one.before == one.after:
        return f"始终为 {one.before:.6g}"
    return f"原脚本 {one.before:.6g}，使用措施后 {one.after:.6g}；小于 {one.least_seen:.3g} 的变差无法察觉"


def ceiling_in_chinese(one: Ceiling) -> str:
    if one.reached is None or one.binds is None:
        return "没有测到上限"
    per_s = {"compute": one.compute_per_s, "feed": one.feed_per_s}
    other = "feed" if one.binds == "compute" else "compute"
    doubt = f"；{_ALONE[other]}的上限未测量" if per_s[other] is None else ""
    share = f"{100 * one.reached.mid:.0f}%"
    return f"达到{_ALONE[one.binds]}所能达到的 {per_s[one.binds]:.4g} {_UNITS[one.unit]}的 {share}{doubt}"

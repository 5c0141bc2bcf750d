"""A verdict in one sentence, in English and in Chinese, from the same grounds: only the words differ."""

from __future__ import annotations

from dataclasses import dataclass

from flatout.records.report import Bound, Cost, Grounds, Verdict
from flatout.words.figures import plain


@dataclass(frozen=True, slots=True)
class _Language:
    """Its words, with gaps for the figures, which every language writes alike and in the same order."""

    no_step: str
    # `share` of a step, and the milliseconds of it.
    amount: str
    # By whether there is a GPU.
    computes: tuple[str, str]
    costs: dict[Bound, tuple[str, str]]
    nothing: str
    # Between computing and what else there is; between two costs.
    beside: str
    also: str
    stop: str

    def sentence(self, grounds: Grounds | None, healthy: bool) -> str:
        if grounds is None:
            return self.no_step
        costs = self.also.join(self._cost(one, grounds) for one in grounds.costs)
        parts = [costs] if costs else []
        if grounds.compute_share is not None:
            words = self.computes[grounds.on_gpu]
            parts.insert(0, words.format(share=f"{grounds.compute_share:.0%}", step_ms=f"{grounds.step_ms:.3g}"))
        if healthy:
            parts.append(self.nothing)
        text = self.beside.join(parts)
        return plain(f"{text[0].upper()}{text[1:]}{self.stop}")

    def _cost(self, one: Cost, grounds: Grounds) -> str:
        amount = self.amount.format(
            share=f"{one.share:.0%}", ms=f"{one.share * grounds.step_ms:.3g}", step_ms=f"{grounds.step_ms:.3g}"
        )
        return self.costs[one.cause][grounds.on_gpu].format(amount=amount)


_ENGLISH = _Language(
    no_step="No training step was seen, so there is nothing to judge.",
    amount="{share} of each step ({ms} of {step_ms} ms)",
    computes=(
        "the CPU computes for {share} of each {step_ms} ms step",
        "the GPU computes for {share} of each {step_ms} ms step",
    ),
    costs={
        "input": ("the training waits for data for {amount}", "the GPU waits for data for {amount}"),
        "transfer": ("copies to the device take {amount}",) * 2,
        "sync": ("waiting for the device's results costs {amount}",) * 2,
        "host": (
            "Python between the passes takes {amount}",
            "the GPU waits for Python to launch its work for {amount}",
        ),
        "cadence": ("evaluation, checkpoints and logging take {amount}",) * 2,
    },
    nothing="nothing worth fixing",
    beside="; ",
    also=", and ",
    stop=".",
)
_CHINESE = _Language(
    no_step="没有看到任何训练步，因此无从判断。",
    amount="占每步的 {share}（{ms} / {step_ms} ms）",
    computes=("CPU 有 {share} 的时间在计算，每步 {step_ms} ms", "GPU 有 {share} 的时间在计算，每步 {step_ms} ms"),
    costs={
        "input": ("训练等待数据的时间{amount}", "GPU 等待数据的时间{amount}"),
        "transfer": ("把数据拷贝到设备的时间{amount}",) * 2,
        "sync": ("等待设备返回结果的时间{amount}",) * 2,
        "host": ("前向、反向与更新之间的 Python 代码{amount}", "GPU 等待 Python 发射 kernel 的时间{amount}"),
        "cadence": ("评估、检查点与日志的时间{amount}",) * 2,
    },
    nothing="没有值得修复的问题",
    beside="；",
    also="，同时",
    stop="。",
)


def in_english(grounds: Grounds | None, healthy: bool) -> str:
    return _ENGLISH.sentence(grounds, healthy)


def in_chinese(verdict: Verdict) -> str | None:
    """None where the record has no grounds, as those of an older flatout: then its own sentence is all there is."""
    if verdict.grounds is None and verdict.sentence != _ENGLISH.no_step:
        return None
    return _CHINESE.sentence(verdict.grounds, verdict.healthy)

"""The sentence of a verdict: a message made of the verdict's grounds, and its words."""

from __future__ import annotations

from functools import reduce

from ..records.message import VERBATIM, Message, message
from ..records.report import Cost, Grounds, Verdict
from .render import Words, chinese

_AMOUNT = Words(
    "{share:.0%} of each step ({ms:.3g} of {step_ms:.3g} ms)", "占每步的 {share:.0%}（{ms:.3g} / {step_ms:.3g} ms）"
)


def _with_amount(english: str, chinese: str) -> Words:
    return Words(f"{english} {_AMOUNT.english}", f"{chinese}{_AMOUNT.chinese}")


_COPIES = _with_amount("copies to the device take", "把数据拷贝到设备的时间")
_SYNCS = _with_amount("waiting for the device's results costs", "等待设备返回结果的时间")
_PAUSES = _with_amount("evaluation, checkpoints and logging take", "评估、检查点与日志的时间")

TABLE = {
    "verdict.no_step": Words(
        "No training step was seen, so there is nothing to judge.", "没有看到任何训练步，因此无从判断。"
    ),
    "verdict.computes.cpu": Words(
        "the CPU computes for {share:.0%} of each {step_ms:.3g} ms step",
        "CPU 有 {share:.0%} 的时间在计算，每步 {step_ms:.3g} ms",
    ),
    "verdict.computes.gpu": Words(
        "the GPU computes for {share:.0%} of each {step_ms:.3g} ms step",
        "GPU 有 {share:.0%} 的时间在计算，每步 {step_ms:.3g} ms",
    ),
    "verdict.input.cpu": _with_amount("the training waits for data for", "训练等待数据的时间"),
    "verdict.input.gpu": _with_amount("the GPU waits for data for", "GPU 等待数据的时间"),
    "verdict.transfer.cpu": _COPIES,
    "verdict.transfer.gpu": _COPIES,
    "verdict.sync.cpu": _SYNCS,
    "verdict.sync.gpu": _SYNCS,
    "verdict.host.cpu": _with_amount("other work of the script takes", "脚本的其他工作"),
    "verdict.host.gpu": _with_amount(
        "the GPU waits for Python to launch its work for", "GPU 等待 Python 发射 kernel 的时间"
    ),
    "verdict.cadence.cpu": _PAUSES,
    "verdict.cadence.gpu": _PAUSES,
    "verdict.at_peak": Words("{first} at {mfu:.0%} of its peak", "{first}，达到峰值的 {mfu:.0%}"),
    "verdict.moving": Words(
        "kernels that wait for memory take {share:.0%} of it", "其中等待显存的 kernel 占 {share:.0%}"
    ),
    "verdict.nothing": Words("nothing worth fixing", "没有值得修复的问题"),
    "verdict.nothing_seen": Words(
        "nothing worth fixing was seen, but how fast its kernels are was not recorded (a longer run records it)",
        "没有看到值得修复的问题，但没有记录 kernel 有多快（运行久一些就会记录）",
    ),
    "verdict.also": Words("{first}, and {second}", "{first}，同时{second}"),
    "verdict.beside": Words("{first}; {second}", "{first}；{second}"),
    "verdict.sentence": Words("{words!c}.", "{words}。"),
}


def verdict_sentence(grounds: Grounds | None, healthy: bool) -> Message:
    """`grounds` are None where no step was seen."""
    if grounds is None:
        return message("verdict.no_step")
    parts = []
    if grounds.compute_share is not None:
        computes = _on_device("computes", grounds, share=grounds.compute_share, step_ms=grounds.step_ms)
        if grounds.mfu is not None:
            computes = message("verdict.at_peak", first=computes, mfu=grounds.mfu)
        parts.append(computes)
        if grounds.moving_share is not None:
            parts.append(message("verdict.moving", share=grounds.moving_share))
    if grounds.costs:
        parts.append(_join("verdict.also", [_cost(cost, grounds) for cost in grounds.costs]))
    if healthy:
        is_speed_known = not grounds.on_gpu or grounds.mfu is not None
        parts.append(message("verdict.nothing" if is_speed_known else "verdict.nothing_seen"))
    return message("verdict.sentence", words=_join("verdict.beside", parts))


def verdict_in_chinese(verdict: Verdict) -> str | None:
    """None where the record has neither a message nor grounds, as those of an older flatout."""
    if verdict.sentence.id != VERBATIM:
        return chinese(verdict.sentence)
    return None if verdict.grounds is None else chinese(verdict_sentence(verdict.grounds, verdict.healthy))


def _cost(cost: Cost, grounds: Grounds) -> Message:
    ms = cost.share * grounds.step_ms
    return _on_device(cost.cause, grounds, share=cost.share, ms=ms, step_ms=grounds.step_ms)


def _on_device(what: str, grounds: Grounds, **figures: float) -> Message:
    return Message(f"verdict.{what}.{'gpu' if grounds.on_gpu else 'cpu'}", figures)


def _join(id: str, parts: list[Message]) -> Message:
    return reduce(lambda first, second: Message(id, {"first": first, "second": second}), parts)

"""Words that many areas use."""

from __future__ import annotations

from .table import Words

TABLE: dict[str, Words] = {
    # What became of a remedy in a run.
    "remedy_state.applied": Words("{id} = {value}", "{id} = {value}"),
    "remedy_state.told": Words("{name} {value}", "{name} {value}"),
    "remedy_state.applied_to": Words("{id} = {value} ({live})", "{id} = {value}（{live}）"),
    "remedy_state.refused": Words("{id}: not applied: {why}", "{id}：未应用：{why}"),
    "remedy_state.failed": Words("{id}: failed: {why}", "{id}：失败：{why}"),
    "remedy_state.reverted": Words("{id}: reverted after {step} steps: {why}", "{id}：{step} 步后撤销：{why}"),
    "out_of_memory": Words("out of memory", "内存不足"),
}

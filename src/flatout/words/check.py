"""What `flatout check --run` says of a finding that a run has measured, and where a cause is written."""

from __future__ import annotations

from .table import Words

TABLE: dict[str, Words] = {
    "check.no_steps": Words(
        "run {run} has no training step, so it tells nothing of what is found here",
        "运行 {run} 没有训练步，因此说明不了这里发现的问题",
    ),
    "check.files_changed": Words(
        "changed since the run began, so that lines are matched by their text: {files}",
        "运行开始后已修改，因此按文本匹配代码行：{files}",
    ),
    "check.no_gpu": Words("the run used no GPU", "该运行没有使用 GPU"),
    "check.hidden": Words(
        "of {ms:.3g} ms here most pass while the device computes", "这里的 {ms:.3g} ms 大部分与设备计算重叠"
    ),
    "check.live_setting": Words("{name} is {value} in this run", "该运行中 {name} 为 {value}"),
    "check.step_waits": Words("a step waits {ms:.2g} ms for its batch", "每步等待批次 {ms:.2g} ms"),
    "check.pauses": Words(
        "evaluation, checkpoints and logging take {ms:.2g} ms a step together",
        "评估、检查点与日志合计每步 {ms:.2g} ms",
    ),
    "check.unseen": Words(
        "in none of {looks:,.0f} looks at what runs beside it", "对同处代码的 {looks:,.0f} 次采样中一次也没有出现"
    ),
    "check.few_looks": Words("too few looks at the lines of this run", "对该运行代码行的采样太少"),
    "check.cannot_tell": Words("a run does not show what this costs", "从运行中看不出它的代价"),
    "check.line_gone": Words(
        "the file was changed, and what the run saw is not in it any more", "文件已修改，运行时看到的代码已不在其中"
    ),
    "check.costs_at_most": Words(
        "{cause}; this takes {ms:.3g} of each {step_ms:.3g} ms step at most",
        "{cause}；最多占每步 {step_ms:.3g} ms 中的 {ms:.3g} ms",
    ),
    "check.see_also": Words("{change} (see also {codes})", "{change}（另见 {codes}）"),
    "check.unused_ignore": Words(
        "nothing is found here that `{comment}` would silence", "这里没有 `{comment}` 会屏蔽的问题"
    ),
    "check.delete_comment": Words("delete the comment", "删除该注释"),
}

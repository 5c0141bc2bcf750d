"""What is said of findings beside the words of their family: of places, of values, of a fix, and of the model."""

from __future__ import annotations

from .render import Words

TABLE: dict[str, Words] = {
    # What detectors of several families say.
    "problems.step_of_function": Words("every training step ({function})", "每个训练步（{function}）"),
    "problems.step_of_loop": Words("every step of the training loop in line {line}", "第 {line} 行的训练循环的每一步"),
    "problems.step_of_loop_in_file": Words(
        "every step of the training loop in {file}:{line}", "{file}:{line} 的训练循环的每一步"
    ),
    "problems.in_step": Words("in {step}", "在{step}"),
    "problems.at_each_call": Words("at each {function}()", "在每次 {function}() 中"),
    "problems.every_few_steps": Words("at every {period} steps", "每隔 {period} 步"),
    "problems.setting_missing": Words("{setting} is not given", "没有设 {setting}"),
    "problems.both": Words("{first}; {second}", "{first}；{second}"),
    "problems.setting_is": Words("{setting} is {value}", "{setting} 是 {value}"),
    # What `flatout check` says of a finding that a run has measured.
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
    # What a value is called where it is written, and why another place matters.
    "source.default": Words("the default of {name}", "{name} 的默认值"),
    "source.default_in": Words("the default of {name} in {function}()", "{function}() 中 {name} 的默认值"),
    "source.parameter": Words("{name} of {function}()", "{function}() 的 {name}"),
    # What a fix does.
    "fix.add": Words("add {code}", "加上 {code}"),
    "fix.add_after_imports": Words("add {code} after the imports", "在 import 之后加上 {code}"),
    "fix.delete_call": Words("delete the call", "删掉这个调用"),
    "fix.drop": Words("leave out {code}", "去掉 {code}"),
    "fix.replace": Words("{new} instead of {old}", "用 {new} 代替 {old}"),
    # Beside a place that one has to see to understand a finding.
    "related.calls": Words("calls {function}", "调用 {function}"),
    "related.training_loop": Words("the training loop", "训练循环"),
    "related.reaches_loader": Words("reaches this DataLoader", "传给这个 DataLoader"),
    "related.reaches_switch": Words("reaches this switch", "传给这个开关"),
    "related.reaches_tokenizer": Words("reaches this tokenizer", "传给这个分词器"),
    "related.and_here": Words("and here", "还有这里"),
    "related.uses": Words("uses {name}", "使用 {name}"),
    "related.set_here": Words("set here: {setting}", "在这里设置：{setting}"),
    "related.same_number": Words("has the same number in its call", "它的调用里写着同一个数字"),
    "related.steps_after_batch": Words("steps after every batch", "每个批次之后都更新一步"),
    "related.clock_starts": Words("the clock starts here", "计时从这里开始"),
    "related.clock_starts_with_batch": Words(
        "the clock starts here, with the batch in hand", "计时从这里开始，此时批次已经取到"
    ),
    "related.repeats": Words("goes through it again", "再次遍历它"),
    "related.its_loader": Words("its DataLoader", "它的 DataLoader"),
    "related.training_loader": Words("the training's loader", "训练用的加载器"),
    "related.workers_loader": Words("the workers' DataLoader", "这些 worker 所属的 DataLoader"),
    "related.compiled": Words("compiled here", "在这里编译"),
    "related.copies": Words("copies to the device", "复制到设备"),
    "related.collated": Words("what the collate function returns", "collate 函数返回的内容"),
    "related.fills": Words("fills {name}", "填充 {name}"),
    "related.shuffles": Words("shuffles", "打乱顺序"),
    # What a change makes of the model of a step, and where that does not reproduce the run.
    "model.method": Words("of a step of {step_ms:.3g} ms: {changes}", "每步 {step_ms:.3g} ms：{changes}"),
    "model.method_most": Words(
        "of a step of {step_ms:.3g} ms, at most: {changes}", "每步 {step_ms:.3g} ms，至多：{changes}"
    ),
    "model.ready_batches": Words("{ms:.3g} ms less waiting for a batch", "少等批次 {ms:.3g} ms"),
    "model.less_host": Words("{ms:.3g} ms less in the training thread", "训练线程少用 {ms:.3g} ms"),
    "model.less_pause": Words("{ms:.3g} ms less in `{phase}`", "`{phase}` 少用 {ms:.3g} ms"),
    "model.rarer_pause": Words(
        "{ms:.3g} ms less in `{phase}`, which comes {times} times less often",
        "`{phase}` 的次数减到原来的 {times} 分之一，少用 {ms:.3g} ms",
    ),
    "model.less_device": Words("{ms:.3g} ms less on the device", "设备少用 {ms:.3g} ms"),
    "model.more_device": Words("{ms:.3g} ms more on the device", "设备多用 {ms:.3g} ms"),
    "model.no_sync": Words("{ms:.3g} ms less waiting for the device", "少等设备 {ms:.3g} ms"),
    "model.less_step": Words("{ms:.3g} ms less", "少用 {ms:.3g} ms"),
    "model.at_least": Words("at least {ms:.3g} ms are left", "至少还要 {ms:.3g} ms"),
    "model.workers": Words("{count} workers instead of {now}", "worker 从 {now} 个变为 {count} 个"),
    "model.batch_costs": Words(
        "making its batch takes {ms:.3g} instead of {now_ms:.3g} ms", "制作批次从 {now_ms:.3g} ms 变为 {ms:.3g} ms"
    ),
    "model.more_batch": Words("{ms:.3g} ms more for making its batch", "制作批次多用 {ms:.3g} ms"),
    "model.less_batch": Words("{ms:.3g} ms less for making its batch", "制作批次少用 {ms:.3g} ms"),
    "model.even_batches": Words("none of the {share:.0%} of batches that are late", "不再有 {share:.0%} 的迟到批次"),
    "model.prefetch": Words("{count} batches ahead for each worker", "每个 worker 预取 {count} 个批次"),
    "model.less_taking": Words("{ms:.3g} ms less for taking a batch", "取批次少用 {ms:.3g} ms"),
    "model.no_starts": Words(
        "no start of {each_ms:.3g} ms with each iterator", "每次建立迭代器不再花 {each_ms:.3g} ms 启动"
    ),
    "model.not_reproduced": Words(
        "no gain is promised: the model of the step gives {played_ms:.3g} ms where {step_ms:.3g} ms were measured",
        "不预测提升：步模型得出 {played_ms:.3g} ms，而实测为 {step_ms:.3g} ms",
    ),
}

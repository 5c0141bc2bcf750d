"""What `flatout compare` says of two arms of runs, and `flatout logs` of two logs."""

from __future__ import annotations

from .table import Words

TABLE: dict[str, Words] = {
    "compare.faster": Words(
        "{after} is faster than {before}: {gain} {unit}s/s", "{after} 比 {before} 快：{gain} {unit}s/s"
    ),
    "compare.slower": Words(
        "{after} is slower than {before}: {gain} {unit}s/s", "{after} 比 {before} 慢：{gain} {unit}s/s"
    ),
    "compare.no_difference": Words(
        "no sure difference between {before} and {after}: {gain} {unit}s/s",
        "{before} 与 {after} 没有确定的差别：{gain} {unit}s/s",
    ),
    "compare.not_measured": Words(
        "{before} and {after} cannot be compared in speed: too few steps after warm-up",
        "{before} 与 {after} 无法比较速度：预热之后的步数太少",
    ),
    # How far they compare.
    "compare.one_process": Words(
        "one process each: what processes differ by is assumed (1% each), not measured here; "
        "several runs of either, as {before},RUN2 {after},RUN3, would measure it",
        "每边只有一个进程：进程之间的差异是假定的（各 1%），没有实测；"
        "每边给几次运行即可测出，如 {before},RUN2 {after},RUN3",
    ),
    "compare.scripts_differ": Words("the scripts differ: {before} and {after}", "脚本不同：{before} 与 {after}"),
    "compare.devices_differ": Words("the devices differ: {before} and {after}", "设备不同：{before} 与 {after}"),
    "compare.batches_differ": Words(
        "batches differ in size ({before:.4g} and {after:.4g} samples a step): compare by samples, not by steps",
        "批大小不同（每步 {before:.4g} 与 {after:.4g} 个样本）：应按样本比较，不按步比较",
    ),
    "compare.by_steps": Words(
        "samples are not known in all of them, so steps are compared, whatever their size",
        "并非都知道样本数，因此按步比较，不论每步大小",
    ),
    "compare.run_failed": Words("{run} ended with exit code {code}", "{run} 以退出码 {code} 结束"),
    "compare.run_going_on": Words(
        "{run} is still being recorded: this is as far as it has got", "{run} 仍在记录中：这是到目前为止的情况"
    ),
    # Logs.
    "logs.no_difference": Words(
        "No clear difference: {change:+.1f}% {by}, within what each log varies by itself",
        "没有明显差别：{change:+.1f}% {by}，在每份日志自身的波动之内",
    ),
    "logs.same_pace": Words("Both logs have the same pace ({rate:.4g} {by})", "两份日志速度相同（{rate:.4g} {by}）"),
    "logs.second_faster": Words(
        "The second log is {change:.1f}% faster: {second:.4g} against {first:.4g} {by}",
        "第二份日志快 {change:.1f}%：{second:.4g} 对 {first:.4g} {by}",
    ),
    "logs.second_slower": Words(
        "The second log is {change:.1f}% slower: {second:.4g} against {first:.4g} {by}",
        "第二份日志慢 {change:.1f}%：{second:.4g} 对 {first:.4g} {by}",
    ),
    "logs.batches_unknown": Words(
        "it/s compare only between equal batches; if they differ, give --batch-size for each file, in order",
        "it/s 只能在批大小相同时比较；若不同，请按文件顺序分别给出 --batch-size",
    ),
    "logs.batches_differ": Words(
        "The batches differ: {change:+.0f}% it/s says nothing", "批大小不同：{change:+.0f}% it/s 说明不了什么"
    ),
    "logs.batches_differ_flat": Words(
        "The batches differ: {change:+.0f}% it/s says nothing. Equal samples/s at different batches point at the input"
        " side rather than the GPU; `flatout run` on the script tells",
        "批大小不同：{change:+.0f}% it/s 说明不了什么。批大小不同而样本/秒相同，问题多半在数据输入而不在 GPU；"
        "用 `flatout run` 运行脚本即可知道",
    ),
    "logs.batch_given": Words("--batch-size", "--batch-size"),
    "logs.batch_printed": Words("printed with each reading", "每条读数都打印了"),
    "logs.batch_from_rates": Words("samples/s over it/s", "样本/秒 除以 it/s"),
    # Where `flatout memory` has the size of a sample from.
    "memory.as_given": Words("as given", "按给定值"),
    "memory.copied": Words(
        "bytes copied to the GPU in the run, over its samples", "运行中拷贝到 GPU 的字节数除以样本数"
    ),
}

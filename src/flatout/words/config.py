"""Problems of settings: their titles, and what their detectors say."""

from __future__ import annotations

from .render import ProblemWords, Words, titles

PROBLEMS = {
    "CF801": ProblemWords(
        Words("A configured loader setting does not reach the DataLoader", "配置的加载器设置从未生效"),
        "命令行或配置文件设了 `num_workers`、`batch_size`、`prefetch_factor`、"
        "`pin_memory` 或 `persistent_workers`，但实际训练用的 DataLoader 是另一个值："
        "构造它的代码没有把设置传下去。",
        "在构造加载器的地方把值传进去，例如 `DataLoader(dataset, num_workers=config.num_workers)`；若是有意覆盖，"
        "就从配置里删掉它。缺的是 worker 时，`loader.workers` 可以从外部补上。",
    ),
    "CF802": ProblemWords(
        Words("A configured precision or cudnn setting has no effect", "配置的精度或 cudnn 设置没有生效"),
        "命令行或配置文件要求 `cudnn_benchmark`、`cudnn_deterministic`、TF32 或混合精度，"
        "但运行中 torch 的状态不是这样：别处（常常是 `set_seed`）覆盖了它，或根本没有人读它。",
        "在训练开始处、设好随机种子之后再设置它，例如 `torch.backends.cudnn.benchmark = config.cudnn_benchmark`。"
        "加上 `--allow numeric`，`cudnn.benchmark` 可以从外部使它生效。",
    ),
    "CF803": ProblemWords(
        Words("A performance setting that nothing reads", "一个关于速度的设置没有人读"),
        "`accumulation_steps`、`prefetch`、`cache_size`、`eval_interval` 之类的选项、配置项或字段声明了也设置了，"
        "但训练代码没有使用它。",
        "在该用的地方读取它，或者删掉它，免得有人白白去调。",
    ),
    "CF804": ProblemWords(
        Words("The loss scale is raised after an overflow", "溢出之后反而调高了损失缩放"),
        "出现 NaN 或溢出之后，代码把 loss scale 乘大，或构造了一个该回退时反而增长的 scaler。"
        "溢出说明缩放后的梯度放不进 float16，再调高只会让下一步也溢出、更新被跳过。",
        '减半：`scale = max(scale / 2, 1.0)`，或交给 `torch.amp.GradScaler("cuda")`；也可以改用不需要缩放的 bfloat16。',
    ),
}
TABLE = titles(PROBLEMS) | {
    # A setting, and both of its values.
    "config.difference": Words(
        "{setting} is configured as {configured} but is {live}", "{setting} 配置为 {configured}，实际是 {live}"
    ),
    "config.on_command_line": Words("command line: {option}", "命令行：{option}"),
    "cf801.fix": Words("pass {code} on", "把 {code} 传下去"),
    "cf801.cause": Words("{differences} in the loader that trains", "训练用的加载器里，{differences}"),
    "cf801.change": Words(
        "pass {values} to the DataLoader here, or remove it from the config",
        "在这里把 {values} 传给 DataLoader，或从配置里删掉它",
    ),
    "cf801.change_too_many": Words(
        "{change}; {workers} workers are too many for {cpus:g} CPUs",
        "{change}；{cpus:g} 个核用 {workers} 个 worker 太多",
    ),
    "cf801.source_parameter": Words("{state}, and {option} is not read", "{state}，而 {option} 没有人读"),
    "cf801.source_unknown": Words(
        "{state}, and {option} never reaches the loader", "{state}，而 {option} 没有传到加载器"
    ),
    "cf801.source_known": Words(
        "{state}, but {option} is {value} and never reaches the loader",
        "{state}，但 {option} 是 {value}，没有传到加载器",
    ),
    "cf801.source_change": Words(
        "pass it on: {values} in this DataLoader, or remove it from the settings",
        "传下去：在这个 DataLoader 里用 {values}，或从设置里删掉它",
    ),
    "cf802.cause": Words("{differences} in the training process ({place})", "训练进程里，{differences}（{place}）"),
    "cf802.change": Words(
        "{change}, after seeding; or remove it from the config", "设好随机种子之后：{change}；或从配置里删掉它"
    ),
    "cf802.autocast": Words("torch.autocast around the forward pass", "用 torch.autocast 包住前向"),
    "cf802.source_overruled": Words(
        "{setting}, but nothing reads it and this line sets it the other way",
        "{setting}，但没有人读它，而这一行把它设成了相反的值",
    ),
    "cf802.source_unread": Words("{setting}, but no code of the training reads it", "{setting}，但训练代码没有读它"),
    "cf802.source_change": Words(
        "{change}, after seeding; or remove {setting}", "设好随机种子之后：{change}；或删掉 {setting}"
    ),
    "cf803.source_cause": Words("{setting}, and no code of the training uses it", "{setting}，而训练代码没有使用它"),
    "cf803.source_accumulation": Words(
        "{setting}, and nothing accumulates: the optimizer steps after every batch",
        "{setting}，但并没有累积：每个批次之后优化器都更新一次",
    ),
    "cf803.source_change": Words(
        "read {setting} where it belongs, or remove it", "在该用的地方读取 {setting}，或删掉它"
    ),
    "cf803.source_mmcv": Words(
        "mmcv 1.x knows no accumulative_counts: nothing accumulates", "mmcv 1.x 没有 accumulative_counts：并不会累积"
    ),
    "cf804.source_raised": Words(
        "{code} after {test}: the next step overflows as well", "{test} 之后 {code}：下一步还会溢出"
    ),
    "cf804.source_comment": Words(
        "the comment advises raising the loss scale at a NaN or overflow; it has to be lowered",
        "注释建议在出现 NaN 或溢出时调高损失缩放；应当调低",
    ),
    "cf804.source_growth": Words(
        "growth_factor must be above 1, as it raises the scale, and it is {value:g}",
        "growth_factor 用来调高缩放，必须大于 1，这里是 {value:g}",
    ),
    "cf804.source_backoff": Words(
        "backoff_factor must be below 1, as it lowers the scale, and it is {value:g}",
        "backoff_factor 用来调低缩放，必须小于 1，这里是 {value:g}",
    ),
    "cf804.source_leave_out": Words("leave {argument} out", "不要设 {argument}"),
    "cf804.source_change": Words(
        "halve the scale after an overflow, or leave it to torch.amp.GradScaler; bfloat16 needs none",
        "溢出之后把缩放减半，或交给 torch.amp.GradScaler；bfloat16 不需要缩放",
    ),
}

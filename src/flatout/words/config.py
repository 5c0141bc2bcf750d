"""Problems of settings: their titles, and what their detectors say."""

from __future__ import annotations

from flatout.words.table import ProblemWords, Words, titles

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
TABLE = titles(PROBLEMS) | {}

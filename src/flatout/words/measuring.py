"""Problems of the script's own measurements (MS0xx)."""

from __future__ import annotations

from .render import ProblemWords, Words, titles

PROBLEMS = {
    "MS001": ProblemWords(
        Words("The data timer starts after the batch has arrived", "数据计时从批次到手之后才开始"),
        "名为数据时间的数值是在 `for batch in loader:` 的循环体里计的，这时已经等完了批次：测到的只是拷贝，"
        "或者什么都没有测到。",
        "在请求批次之前开始计时：循环之前和循环体最后一行各写 `end = time.perf_counter()`，"
        "循环体第一行写 `data_time.update(time.perf_counter() - end)`。",
    ),
    "MS002": ProblemWords(
        Words("GPU work is timed without a sync", "给 GPU 工作计时却没有同步"),
        "在前向、反向或优化器更新前后读时钟，中间没有等设备。这些调用只要排进队列就返回，测到的是发射的时间；"
        "第一个读结果的地方（如 `loss.item()`）看起来承担了全部时间。",
        "前后各记录一个 `torch.cuda.Event(enable_timing=True)`，几步之后再取 `elapsed_time`；仅在排查时，"
        "读时钟之前可以 `torch.cuda.synchronize()`。",
    ),
    "MS003": ProblemWords(
        Words("Removed or deprecated profiler API", "profiler 接口已移除或弃用"),
        "`torch.utils.bottleneck` 已被移除；`torch.profiler.profile` 的 `use_cuda=` 已弃用且无效，"
        "`torch.autograd.profiler.profile` 的 `use_cuda=` 已弃用。",
        "使用 `flatout run train.py`，或只对几步使用"
        " `torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])`；"
        'autograd 的那个改用 `use_device="cuda"`。',
    ),
}
TABLE = titles(PROBLEMS) | {
    # MS001
    "ms001.source_cause": Words(
        "`{name}` is measured after the batch has arrived: the wait for it is left out",
        "`{name}` 在批次到手之后才计时：等批次的时间没有算进去",
    ),
    "ms001.source_change": Words(
        "read the clock before the loop and at the end of its body; take the difference in the first line of the body",
        "在循环之前和循环体末尾读时钟，在循环体第一行取差值",
    ),
    # MS002
    "ms002.source_cause": Words(
        "nothing waits for the GPU before the clock is read: this is the time of the launches",
        "读时钟之前没有等设备：测到的是发射的时间",
    ),
    "ms002.source_change": Words(
        "torch.cuda.Event(enable_timing=True) around it; while searching, synchronize before each reading",
        "前后用 torch.cuda.Event(enable_timing=True)；仅在排查时，每次读时钟之前 synchronize",
    ),
    # MS003
    "ms003.source_cause_bottleneck": Words(
        "torch.utils.bottleneck was removed from torch: this fails", "torch 已移除 torch.utils.bottleneck：这里会失败"
    ),
    "ms003.source_change_bottleneck": Words(
        "flatout run SCRIPT, or torch.profiler.profile over a few steps",
        "使用 flatout run SCRIPT，或对几步使用 torch.profiler.profile",
    ),
    "ms003.source_cause_profile": Words(
        "torch.profiler.profile ignores use_cuda: `activities` says what is recorded",
        "torch.profiler.profile 不再理会 use_cuda：记录什么由 `activities` 决定",
    ),
    "ms003.source_change_profile": Words(
        "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], or nothing: both is the default",
        "用 activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]，或什么都不写：默认两者都记录",
    ),
    "ms003.source_cause_autograd": Words(
        "use_cuda of autograd's profiler is deprecated", "autograd profiler 的 use_cuda 已弃用"
    ),
}

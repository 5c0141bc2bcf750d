"""Problems of measuring, in Chinese."""

from __future__ import annotations

from flatout.problems.chinese.words import Words

MEASURING = {
    "MS001": Words(
        "数据计时从批次到手之后才开始",
        "名为数据时间的数值是在 `for batch in loader:` 的循环体里计的，这时已经等完了批次：测到的只是拷贝，"
        "或者什么都没有测到。",
        "在请求批次之前开始计时：循环之前和循环体最后一行各写 `end = time.perf_counter()`，"
        "循环体第一行写 `data_time.update(time.perf_counter() - end)`。",
    ),
    "MS002": Words(
        "设备还在执行时就给这部分计时",
        "在前向、反向或优化器更新前后读时钟，中间没有等设备。这些调用只要排进队列就返回，测到的是发射的时间；"
        "第一个读结果的地方（如 `loss.item()`）看起来承担了全部时间。",
        "前后各记录一个 `torch.cuda.Event(enable_timing=True)`，几步之后再取 `elapsed_time`；仅在排查时，"
        "读时钟之前可以 `torch.cuda.synchronize()`。",
    ),
    "MS003": Words(
        "torch 已没有或不再理会的 profiler",
        "`torch.utils.bottleneck` 已被移除；`torch.profiler.profile` 的 `use_cuda=` 已弃用且无效，"
        "`torch.autograd.profiler.profile` 的 `use_cuda=` 已弃用。",
        "使用 `flatout run train.py`，或只对几步使用"
        " `torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])`；"
        'autograd 的那个改用 `use_device="cuda"`。',
    ),
}

"""English sentences that records hold, in Chinese: those that many runs and fixes have.

A gap {n} takes a number, {} whatever stands there: a name, an interval, another phrase. What is not listed is shown
as it was written.
"""

from __future__ import annotations

import re
from functools import cache

from flatout.records.message import Message
from flatout.words import chinese

_GAPS = {"{n}": r"([-+]?[\d.,]+(?:e[-+]?\d+)?)", "{}": "(.+?)"}
PHRASES = {
    # What became of a remedy.
    "slower: {}": "变慢：{0}",
    "within {n} of the loss": "相差不超过损失的 {0}",
    # Why a remedy was not tried.
    "it ran on the CPU": "运行在 CPU 上",
    "it ran on the CPU, where compiling seldom pays": "运行在 CPU 上，编译很少划算",
    "it ran on the CPU, and CUDA graphs are the GPU's": "运行在 CPU 上，而 CUDA graph 只属于 GPU",
    "it is on already": "已经开启",
    "anomaly mode was off": "异常检测没有开启",
    "no checkpoint was written": "没有写过检查点",
    "the script compiles already": "脚本已经在编译",
    "products are done in half precision": "矩阵乘法已是半精度",
    "hardly any convolutions were seen": "几乎没有看到卷积",
    "the workers keep up with the training": "worker 跟得上训练",
    "the batches are large enough for the device": "批次对设备来说已经够大",
    "only you can say which function may be called less often": "只有你知道哪个函数可以少调用",
    "no function was seen to compute much that could be kept": "没有看到值得保留结果的函数",
    "no samples were seen to be made the same way again and again": "没有看到反复以同样方式制作的样本",
    "batches are ready when they are asked for, or workers are what is missing": "请求时批次已就绪，或缺的是 worker",
    "no call of synchronize holds up this training": "没有 synchronize 调用拖住训练",
    "no copy of a pinned batch holds up this training": "没有锁页批次的拷贝拖住训练",
    "no copies were seen that would be hidden behind kernels": "没有看到可以藏在 kernel 背后的拷贝",
    "no convolutions in half precision were seen with channels first": "没有看到通道在前的半精度卷积",
    "no float32 products were seen that tensor cores would speed up": "没有看到张量核心能加速的 float32 矩阵乘法",
    "the GPU was not seen to be held up by its arithmetic in float32": "没有看到 GPU 受限于 float32 运算",
    "launching operations was not seen to hold the GPU up": "没有看到 GPU 因发射操作而等待",
    "the optimizer's step was not seen to take long": "没有看到优化器更新耗时很长",
    "the host does not wait for results in every step": "主机并非每一步都等待结果",
    "the script reads the results itself (.item()), before any logger is called": (
        "脚本在调用任何日志之前自己就读取结果（.item()）"
    ),
    "the script asks for deterministic algorithms; that is its own choice": "脚本要求确定性算法，这是它自己的选择",
    "it saves memory and costs time; memory was not seen to run out": "它省显存但费时间；没有看到显存不足",
    "logging takes no time worth mentioning": "日志几乎不耗时",
    "evaluation takes no time worth mentioning": "评估几乎不耗时",
    "tidying up memory takes no time worth mentioning": "整理内存几乎不耗时",
    "starting workers takes no time worth mentioning": "启动 worker 几乎不耗时",
    "copies from pageable memory take no time worth mentioning": "可分页内存的拷贝几乎不耗时",
    "writing checkpoints took {} s in all": "写检查点总共只用了 {0} s",
    "{} of the results in the graph are in half precision already": "计算图中已有 {0} 的结果是半精度",
    "the whole run takes {} s, compiling about a minute: that is not paid back": (
        "整个运行只有 {0} s，编译约需一分钟：得不偿失"
    ),
    "crashed": "崩溃",
    "hung": "卡住",
    "out of memory": "内存不足",
    "the machine's memory ran short: {} of {} workers were renewed, without what they had kept": (
        "机器内存不足：{1} 个 worker 中有 {0} 个被换新，不带它们保留的数据"
    ),
    "the machine's memory ran short: {} workers instead of {}": "机器内存不足：worker 由 {1} 个减为 {0} 个",
}


def phrase(words: Message | str) -> str | None:
    """The same in Chinese, None where it is not listed."""
    if isinstance(words, Message):
        return chinese(words)
    if (whole := PHRASES.get(words)) is not None:
        return whole
    for pattern, translated in _patterns():
        if (found := pattern.fullmatch(words)) is not None:
            return translated.format(*(phrase(gap) or gap for gap in found.groups()))
    return None


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    """The most particular first: one that is nearly all gaps takes what others say better."""
    listed = sorted(PHRASES.items(), key=lambda both: -len(re.sub(r"\{n?\}", "", both[0])))
    return tuple((_pattern(english), translated) for english, translated in listed if "{" in english)


def _pattern(english: str) -> re.Pattern[str]:
    parts = (_GAPS.get(part) or re.escape(part) for part in re.split(r"(\{n?\})", english))
    return re.compile("".join(parts), re.DOTALL)

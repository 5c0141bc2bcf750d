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
    # Why the search for a fix ended.
    "nothing was left to try": "没有剩下可试的措施",
    "the time was spent": "时间已用完",
    "less than 5% is left to the ceiling": "距上限已不足 5%",
    "it was interrupted": "被中断",
    # What became of a remedy.
    "there was no time left for it": "没有时间再试",
    "slower: {}": "变慢：{0}",
    "gains no more than {}: {}": "提升不超过 {0}：{1}",
    "not surely over {}: {}": "不能确定超过 {0}：{1}",
    "{}, but too little was run again to know what that is worth": "{0}，但重复运行太少，无法判断其价值",
    "{} is better still": "{0} 更好",
    "{}, in turns within one process": "{0}，在同一进程内轮流",
    "{}, together with {}": "{0}，与 {1} 一起",
    "it gains hardly more than a finer rounding does": "与更精细的舍入相比几乎没有更多提升",
    "{n} of {n} trials failed: {}": "{1} 次试验中有 {0} 次失败：{2}",
    "the trial ended: {}": "试验提前结束：{0}",
    "it did not come into force": "没有生效",
    "it is to change nothing, but {}": "它本不该改变任何数值，但 {0}",
    "frees memory that {} needs; {} by itself": "腾出 {0} 需要的内存；单独为 {1}",
    "the script as it is could not be measured: {}": "无法测量原样的脚本：{0}",
    "{n} steps after warm-up are too few, {n} are needed": "预热之后只有 {0} 步，太少，至少需要 {1} 步",
    "in the proof at the end the whole profile did not surely gain over 1%": (
        "最后验证时，整个配置不能确定提升超过 1%"
    ),
    "there was no time to try the lossless part by itself": "没有时间单独试无损的部分",
    "what it is about comes too seldom to be seen in trials; --budget would have to be {}": (
        "它针对的事在试验中出现得太少，看不到；--budget 须为 {0}"
    ),
    "it begins with the second epoch, after {n} s; --budget would have to be {}": (
        "它从第二个 epoch（{0} s 之后）才开始；--budget 须为 {1}"
    ),
    "the samples draw random numbers, and with other workers they draw others, so bit-identity cannot be asked": (
        "样本会抽取随机数，worker 不同抽到的也不同，因此无法要求逐位一致"
    ),
    # Why nothing can be said of the numbers.
    "the script differs {} when simply run again, so bit-identity cannot be asked of it": (
        "脚本原样再跑一次{0}就不同，因此无法要求逐位一致"
    ),
    "the script as it is differs when simply run again, so bit-identity cannot be asked of it": (
        "脚本原样再跑一次结果就不同，因此无法要求逐位一致"
    ),
    "over the first {n} steps losses agree with the script's own as closely as these with each other ({}); it differs"
    " {} when simply run again": "前 {0} 步的损失与脚本自身各次运行一样接近（{1}）；脚本原样再跑一次{2}就不同",
    "within {n} of the loss": "相差不超过损失的 {0}",
    "to the bit": "逐位一致",
    "{} (with the remedy it differs from step {n})": "{0}（使用措施后从第 {1} 步起不同）",
    "from step {n}": "从第 {0} 步起",
    "in its weights": "权重",
    "no loss was kept": "没有留下损失",
    "no loss could be read": "没有能读到的损失",
    "the script was not run twice over enough steps, so what it varies by itself is not known": (
        "脚本没有在足够多的步数上运行两次，因此不知道它自身的波动"
    ),
    "{n} steps with a loss in every trial are too few, {n} are needed": (
        "每次试验都有损失的只有 {0} 步，太少，至少需要 {1} 步"
    ),
    "the script varies too much: {}": "脚本自身波动太大：{0}",
    "a drift of less than {n}% could not have been seen": "小于 {0}% 的偏移无法察觉",
    "{}, beside trials whose weights were moved once by as much as it rounds": (
        "{0}，对照为权重按其舍入幅度扰动一次的试验"
    ),
    "the loss is not finite at step {n}": "第 {0} 步的损失不是有限值",
    "the script repeats itself to the bit, so it takes a nudged trial to know what rounding does to it": (
        "脚本逐位重复自身，要做一次扰动试验才能知道舍入的影响"
    ),
    # Why a remedy was not tried.
    "it is {}: allow it with --allow {}": "属于 {0} 类：用 --allow {1} 允许",
    "not among --only": "不在 --only 之中",
    "left out by --without": "被 --without 排除",
    "{} is kept, and only one of them can hold": "已保留 {0}，两者只能用一个",
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
    # Notices of a fix.
    "{} files that the script writes went to a scratch folder in the trials, as {}": (
        "脚本写的 {0} 个文件在试验中进了临时目录，如 {1}"
    ),
    "what the script writes went to a scratch folder in the trials: {}": "脚本写的文件在试验中进了临时目录：{0}",
    "evaluations and checkpoints come so seldom under the profile that no trial saw one: After is without them": (
        "在此配置下评估和检查点很少出现，没有一次试验看到：“之后”不含它们"
    ),
    "a trial of all that is kept, and of more in turns with it, ended so: {}. A longer training may, too": (
        "一次包含全部保留措施（并轮换试验其他措施）的试验这样结束：{0}。更长的训练也可能如此"
    ),
    "crashed": "崩溃",
    "hung": "卡住",
    "out of memory": "内存不足",
    "in a trial under the profile {}": "在此配置的一次试验中，{0}",
    "the dataset keeps what it has loaded ({}): where that is used again the script becomes faster by itself, and a"
    " long training gains less than these trials": (
        "数据集会保留读过的内容（{0}）：若会再次用到，脚本自己就会变快，长时间训练的收益小于这些试验"
    ),
    "the machine's memory ran short: {} of {} workers were renewed, without what they had kept": (
        "机器内存不足：{1} 个 worker 中有 {0} 个被换新，不带它们保留的数据"
    ),
    "the machine's memory ran short: {} workers instead of {}": "机器内存不足：worker 由 {1} 个减为 {0} 个",
    "no patch was written: {}": "没有写补丁：{0}",
    "the source was changed as in {}": "源码已按 {0} 修改",
    "evaluations and checkpoints are counted in After alone: Before is too slow to see enough of them": (
        "评估和检查点只计入“之后”：“之前”太慢，试验中看不到足够多次"
    ),
    "evaluations and checkpoints are not counted: trials are too short to see their share of a training": (
        "不计评估和检查点：试验太短，看不出它们在训练中的占比"
    ),
    "none of this can be written into the source safely; the profile does it from outside": (
        "这些都不能安全地写进源码；由措施配置从外部实现"
    ),
    "the source changes that go with it are in {}; flatout fix --apply makes them": (
        "相应的源码修改在 {0} 里；flatout fix --apply 会写入"
    ),
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

"""Problems of several ranks, in Chinese."""

from __future__ import annotations

from flatout.problems.chinese.words import Words

RANK = {
    "RA901": Words(
        "一个 rank 让其他 rank 等待",
        "一起训练的各 rank 同步走每一步，最慢的决定所有人的速度；其他 rank 做完自己的部分，在交换梯度时等它。",
        "看慢的 rank 在哪里多花了时间：给它同样的加载器、worker 和磁盘；把只由一个 rank 做的事移出训练步；"
        "检查那块卡的频率和同机的其他任务。",
    ),
    "RA902": Words(
        "各 rank 分到的数据不均",
        "某个 rank 的批次更大或更多：批次更大，其他 rank 每一步都在等；批次更多，其他 rank 已做完自己的 epoch，"
        "在末尾等待甚至卡死。",
        "使用 `DistributedSampler(dataset, drop_last=True)`，各 rank 用相同的 `batch_size`；"
        "IterableDataset 要按 rank 和 worker 切分成等长的部分。",
    ),
    "RA903": Words(
        "各 rank 的 worker 加起来多于 CPU 核",
        "`num_workers` 是按每个 rank 算的。一台主机上有几个 rank 时，"
        "它们所有的 worker 和训练进程共用这台主机的核；抢不到核的训练进程什么都发射不了。",
        "每个 rank 的 `num_workers` 不超过（核数 − rank 数）/ rank 数。",
    ),
    "RA904": Words(
        "一个进程用 DataParallel 驱动多块 GPU",
        "`torch.nn.DataParallel` 在一个进程里把每个批次分给多块 GPU，每次前向都把模型复制一遍，"
        "再把输出和梯度收集到第一块：一个 Python 解释器轮流为所有 GPU 发射。",
        "每块 GPU 一个进程：`torchrun --nproc-per-node N train.py`，"
        "使用 `DistributedDataParallel` 和 `DistributedSampler`。",
    ),
}

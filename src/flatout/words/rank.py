"""Problems of several ranks (RA9xx)."""

from __future__ import annotations

from .render import ProblemWords, Words, titles

PROBLEMS = {
    "RA901": ProblemWords(
        Words("Straggler: one rank makes the others wait", "有 rank 掉队，其他 rank 都在等它"),
        "一起训练的各 rank 同步走每一步，最慢的决定所有人的速度；其他 rank 做完自己的部分，在交换梯度时等它。",
        "看慢的 rank 在哪里多花了时间：给它同样的加载器、worker 和磁盘；把只由一个 rank 做的事移出训练步；"
        "检查那块卡的频率和同机的其他任务。",
    ),
    "RA902": ProblemWords(
        Words("Ranks get unequal shares of the data", "各 rank 分到的数据不均"),
        "某个 rank 的批次更大或更多：批次更大，其他 rank 每一步都在等；批次更多，其他 rank 已做完自己的 epoch，"
        "在末尾等待甚至卡死。",
        "使用 `DistributedSampler(dataset, drop_last=True)`，各 rank 用相同的 `batch_size`；"
        "IterableDataset 要按 rank 和 worker 切分成等长的部分。",
    ),
    "RA903": ProblemWords(
        Words("Loader workers of all ranks outnumber the CPU cores", "各 rank 的 worker 加起来多于 CPU 核"),
        "`num_workers` 是按每个 rank 算的。一台主机上有几个 rank 时，"
        "它们所有的 worker 和训练进程共用这台主机的核；抢不到核的训练进程什么都发射不了。",
        "每个 rank 的 `num_workers` 不超过（核数 − rank 数）/ rank 数。",
    ),
    "RA904": ProblemWords(
        Words("DataParallel: one process drives several GPUs", "一个进程用 DataParallel 驱动多块 GPU"),
        "`torch.nn.DataParallel` 在一个进程里把每个批次分给多块 GPU，每次前向都把模型复制一遍，"
        "再把输出和梯度收集到第一块：一个 Python 解释器轮流为所有 GPU 发射。",
        "每块 GPU 一个进程：`torchrun --nproc-per-node N train.py`，"
        "使用 `DistributedDataParallel` 和 `DistributedSampler`。",
    ),
}
TABLE = titles(PROBLEMS) | {
    "rank.number": Words("rank {rank}", "rank {rank}"),
    # A rank whose number is not known.
    "rank.process": Words("process {pid}", "进程 {pid}"),
    # RA901
    "ra901.cause": Words(
        "{rank} takes {delay_ms:.3g} ms a step longer than the others, {phase_ms:.3g} ms of it in {phase}, and they"
        " wait for it in backward",
        "{rank} 每步比其他 rank 多花 {delay_ms:.3g} ms，其中 {phase_ms:.3g} ms 花在 {phase} 上，"
        "其他 rank 在 backward 里等它",
    ),
    "ra901.change_loader": Words(
        "give {rank} the same loader as the others: workers, storage, share of the CPU cores",
        "给 {rank} 与其他 rank 相同的加载器：worker、存储、CPU 核的份额",
    ),
    "ra901.change_other": Words(
        "take the work that only {rank} does out of the step", "把只由 {rank} 做的事移出训练步"
    ),
    "ra901.change": Words("find what {rank} does longer in {phase}", "找出 {rank} 在 {phase} 阶段为何更慢"),
    # RA902
    "ra902.cause": Words(
        "{busiest} trained on {most:.0f} samples, {idlest} on {least:.0f}; all wait for the busiest",
        "{busiest} 训练了 {most:.0f} 个样本，{idlest} 训练了 {least:.0f} 个；所有 rank 都在等最忙的那个",
    ),
    "ra902.change": Words(
        "DistributedSampler(dataset, drop_last=True) and the same batch_size on every rank",
        "使用 DistributedSampler(dataset, drop_last=True)，各 rank 用相同的 batch_size",
    ),
    # RA903
    "ra903.cause": Words(
        "{ranks} ranks with {workers} workers each are {processes} processes on {cpus:g} CPU cores, of which"
        " {busy:.3g} are busy",
        "{ranks} 个 rank 各有 {workers} 个 worker，共 {processes} 个进程，而 CPU 只有 {cpus:g} 核，其中 {busy:.3g}"
        " 核在忙",
    ),
    "ra903.change": Words("num_workers={workers} for each rank", "每个 rank 用 num_workers={workers}"),
    # RA904
    "ra904.cause": Words(
        "one process launches the work of {gpus} GPUs, which are busy {share:.0%} of the time",
        "一个进程为 {gpus} 块 GPU 发射全部工作，这些 GPU 只有 {share:.0%} 的时间在忙",
    ),
    "ra904.change": Words(
        "torchrun --nproc-per-node {gpus}, DistributedDataParallel and a DistributedSampler",
        "使用 torchrun --nproc-per-node {gpus}、DistributedDataParallel 和 DistributedSampler",
    ),
    "ra904.source_cause": Words(
        "one process copies the model to all GPUs in each forward pass and launches their work in turn",
        "一个进程在每次前向时把模型复制到所有 GPU，并轮流为它们发射",
    ),
}

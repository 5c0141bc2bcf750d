"""What detectors of several ranks say of a run, in Chinese."""

from __future__ import annotations

SAID_RANK = {
    # A rank whose number is not known.
    "process {n}": "进程 {0}",
    # RA901
    "{} takes {n} ms a step longer than the others, {n} ms of it in {}, and they wait for it in backward": (
        "{0} 每步比其他 rank 多花 {1} ms，其中 {2} ms 花在 {3} 上，其他 rank 在 backward 里等它"
    ),
    "give {} the same loader as the others: workers, storage, share of the processors": (
        "给 {0} 与其他 rank 相同的加载器：worker、存储、CPU 核的份额"
    ),
    "take the work that only {} does out of the step": "把只由 {0} 做的事移出训练步",
    "find what {} does longer in {}": "找出 {0} 在 {1} 阶段为何更慢",
    "a step without the {n} ms of waiting": "每步去掉这 {0} ms 的等待",
    # RA902
    "{} trained on {n} samples, {} on {n}; all wait for the busiest": (
        "{0} 训练了 {1} 个样本，{2} 训练了 {3} 个；所有 rank 都在等最忙的那个"
    ),
    "DistributedSampler(dataset, drop_last=True) and the same batch_size on every rank": (
        "使用 DistributedSampler(dataset, drop_last=True)，各 rank 用相同的 batch_size"
    ),
    "{n} ms less for the busiest rank in a step, and {} of its steps": ("最忙的 rank 每步少 {0} ms，步数为原来的 {1}"),
    # RA903
    "{n} ranks with {n} workers each are {n} processes on {n} processors, of which {n} are busy": (
        "{0} 个 rank 各有 {1} 个 worker，共 {2} 个进程，而 CPU 只有 {3} 核，其中 {4} 核在忙"
    ),
    "num_workers={n} for each rank": "每个 rank 用 num_workers={0}",
    # RA904
    "one process launches the work of {n} GPUs, which are busy {} of the time": (
        "一个进程为 {0} 块 GPU 发射全部工作，这些 GPU 只有 {1} 的时间在忙"
    ),
    "torchrun --nproc-per-node {n}, DistributedDataParallel and a DistributedSampler": (
        "使用 torchrun --nproc-per-node {0}、DistributedDataParallel 和 DistributedSampler"
    ),
    "half of what the GPUs' utilisation leaves, waiting for batches aside": (
        "除等待批次外，GPU 未利用的时间按能收回一半估计"
    ),
}

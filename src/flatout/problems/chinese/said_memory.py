"""What detectors of memory say of a run, in Chinese."""

from __future__ import annotations

SAID_MEMORY = {
    # Whose limit it is, and how long until it is reached.
    "the container's limit": "容器的内存上限",
    "the machine's memory": "机器的内存",
    "{n} min": "{0} 分钟",
    "{n} h": "{0} 小时",
    "{n} days": "{0} 天",
    # ME701
    "the training process keeps {} of each step; {} of {} is reached in {}": (
        "训练进程每步留下 {0}；照此 {3}后用尽（{1}为 {2}）"
    ),
    "find what is kept across steps: lists of losses or outputs need .detach() or .item(), and a bound": (
        "找出跨步保留了什么：存损失或输出的列表要用 .detach() 或 .item()，并设上限"
    ),
    # ME702
    "the run took {} of {} of {}": "本次运行占用了 {0}，{1}为 {2}",
    "fewer workers, a smaller prefetch_factor or a smaller cache in the dataset": (
        "减少 worker，减小 prefetch_factor，或减小数据集里的缓存"
    ),
    "keep less in memory: a smaller cache, memory-mapped files, narrower types": (
        "少在内存里保留：减小缓存，使用内存映射文件，使用更窄的类型"
    ),
    # ME703
    "{} of the {} of GPU {n} are taken": "GPU {2} 的 {1} 显存已占用 {0}",
    "{} of the {} of GPU {n} are taken{}": "GPU {2} 的 {1} 显存已占用 {0}{3}",
    ", {} of it by other processes": "，其中 {0} 被其他进程占用",
    "a smaller batch, bf16 or activation checkpointing; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True": (
        "减小批次，使用 bf16 或激活检查点；设 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    ),
    # ME704
    "{n} times in {n} steps torch had to give back all cached GPU memory": (
        "{1} 步中 torch 有 {0} 次不得不归还全部缓存的显存"
    ),
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or a smaller batch": (
        "设 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True，或减小批次"
    ),
    # ME705
    "the kernel killed {}, which held {} ({} is {})": "内核终止了{0}，它占用 {1}（{2}为 {3}）",
    "the kernel killed {}, which held {}": "内核终止了{0}，它占用 {1}",
    "the kernel killed {} ({} is {})": "内核终止了{0}（{1}为 {2}）",
    "the kernel killed {}": "内核终止了{0}",
    "the training process": "训练进程",
    "a loader worker": "一个加载 worker",
    "a process of the run": "本次运行的一个进程",
    "keep less in the training process: lists that grow, a cache, the whole dataset in memory": (
        "让训练进程少占内存：不断增长的列表、缓存、整个读进内存的数据集"
    ),
    "fewer workers, a smaller cache in the dataset, a smaller prefetch_factor": (
        "减少 worker，减小数据集里的缓存，减小 prefetch_factor"
    ),
    "keep less in memory, or give the run more": "少在内存里保留，或给本次运行更多内存",
    # ME706
    "each of {n} workers grows by {} a minute; {} of {} is reached in {}": (
        "{0} 个 worker 每个每分钟增长 {1}；照此 {4}后用尽（{2}为 {3}）"
    ),
    "keep samples once for all workers, not in the dataset; a bound holds per worker, so × {n}": (
        "样本由所有 worker 共存一份，不要存在数据集里；上限是按每个 worker 算的，总量要 × {0}"
    ),
    # ME707
    "{} went to swap during the run, and {n} pages a second were read back from disk": (
        "运行期间有 {0} 被换出到交换空间，每秒从磁盘读回 {1} 页"
    ),
    "fewer workers, a smaller cache in the dataset, or more memory": "减少 worker，减小数据集里的缓存，或增加内存",
    # ME708
    "{} of each step stay on the device; its {} are full in {}": (
        "每步有 {0} 留在设备上；照此 {2}后它的 {1} 显存就满了"
    ),
    "find what is kept across steps: losses and outputs in lists need .detach(), or .cpu(), and a bound": (
        "找出跨步保留了什么：存进列表的损失和输出要用 .detach() 或 .cpu()，并设上限"
    ),
    # ME709
    "of what is asked of {}, {} is there: {}": "对 {0} 的查找只有 {1} 命中：{2}",
    "it was empty again each of the {n} times that a worker was started": (
        "worker 启动了 {0} 次，每次启动时缓存都是空的"
    ),
    "it holds {} and throws out those that come next": "{0}，淘汰的正是接下来要用的",
    "{n} entries": "它存 {0} 项",
    "{n} entries{}": "它{1}存 {0} 项",
    " in each of {n} workers": "在 {0} 个 worker 中各",
    # What to do is a list: what stands between two entries is a gap of its own.
    "persistent_workers=True{}lru_cache(maxsize=None) if memory allows, else a cache that never evicts"
    "{}one cache shared by the {n} workers": (
        "persistent_workers=True{0}内存够就用 lru_cache(maxsize=None)，否则用从不淘汰的缓存"
        "{1}{2} 个 worker 共用一个缓存"
    ),
    "persistent_workers=True{}stop adding when the cache is full instead of evicting"
    "{}one cache shared by the {n} workers": (
        "persistent_workers=True{0}缓存满了就不再收，而不是淘汰{1}{2} 个 worker 共用一个缓存"
    ),
    "lru_cache(maxsize=None) if memory allows, else a cache that never evicts{}one cache shared by the {n} workers": (
        "内存够就用 lru_cache(maxsize=None)，否则用从不淘汰的缓存{0}{1} 个 worker 共用一个缓存"
    ),
    "stop adding when the cache is full instead of evicting{}one cache shared by the {n} workers": (
        "缓存满了就不再收，而不是淘汰{0}{1} 个 worker 共用一个缓存"
    ),
    "persistent_workers=True{}one cache shared by the {n} workers": (
        "persistent_workers=True{0}{1} 个 worker 共用一个缓存"
    ),
    "persistent_workers=True{}lru_cache(maxsize=None) if memory allows, else a cache that never evicts": (
        "persistent_workers=True{0}内存够就用 lru_cache(maxsize=None)，否则用从不淘汰的缓存"
    ),
    "persistent_workers=True{}stop adding when the cache is full instead of evicting": (
        "persistent_workers=True{0}缓存满了就不再收，而不是淘汰"
    ),
    "lru_cache(maxsize=None) if memory allows, else a cache that never evicts": (
        "内存够就用 lru_cache(maxsize=None)，否则用从不淘汰的缓存"
    ),
    "stop adding when the cache is full instead of evicting": "缓存满了就不再收，而不是淘汰",
    "one cache shared by the {n} workers": "{0} 个 worker 共用一个缓存",
    "keep all samples": "保留所有样本",
    "; ": "；",
    "{} instead of {} are hits, which save {} of a sample's making": (
        "命中率从 {1} 升到 {0}，每次命中省去制作样本所需时间的 {2}"
    ),
    # ME710
    "torch holds {} on the device for {} of tensors at most; up to {} lie in pieces between them": (
        "torch 在设备上占着 {0}，其中的张量最多只有 {1}；夹在张量之间的碎块多达 {2}"
    ),
    "torch holds {} on the device for {} of tensors at most; up to {} lie in pieces between them{}": (
        "torch 在设备上占着 {0}，其中的张量最多只有 {1}；夹在张量之间的碎块多达 {2}{3}"
    ),
    ", and {n} times it had to start over": "，分配器有 {0} 次不得不重新来过",
}

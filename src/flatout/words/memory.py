"""Problems of memory: their titles, and what their detectors say."""

from __future__ import annotations

from .render import ProblemWords, Words, titles

PROBLEMS = {
    "ME701": ProblemWords(
        Words("Host memory grows with every step", "主机内存每一步都在增长"),
        "训练进程每一步都留下一些东西：带计算图的损失、预测结果、存进列表的批次。内存用尽之前会先换页，"
        "最后被内核终止。",
        "只保留数值，不保留带计算图的张量：`total += loss.detach()`，或隔一段时间 `losses.append(loss.item())`；"
        "给累积的容器设上限（`collections.deque(maxlen=...)`）；必须保留的写到磁盘。",
    ),
    "ME702": ProblemWords(
        Words("Host memory is nearly full", "主机内存快用完了"),
        "本次运行的所有进程加起来接近容器或机器的上限。接近上限时内核会丢弃文件缓存，样本又要从磁盘读；"
        "超过上限就会换页或终止进程。",
        "减少 worker，减小 `prefetch_factor` 和缓存（数据集里的缓存每个 worker、每个 rank 各有一份），"
        "或在缓存里用更窄的类型。",
    ),
    "ME703": ProblemWords(
        Words("GPU memory is nearly full", "显存快用完了"),
        "本次运行占用的显存接近设备的总量。一条更长的序列、更大的最后一批或一次评估就可能不够。",
        "稍微减小批次，使用激活检查点或 bf16，`optimizer.zero_grad(set_to_none=True)`，"
        "用 `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` 减少碎片；结束设备上的其他进程。",
    ),
    "ME704": ProblemWords(
        Words("CUDA allocator retries", "显存分配器用尽后重新来过"),
        "torch 向驱动申请显存被拒，只好归还全部缓存块再试一次。归还要等设备做完所有工作，之后的几步又要重新申请。",
        "设 `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`，减小批次，或减少形状的种类（只填充到少数几种长度）。",
    ),
    "ME705": ProblemWords(
        Words("Process killed by the OOM killer", "内核因内存不足终止了进程"),
        "容器或机器内存耗尽，内核用 SIGKILL 终止了一个进程："
        "加载 worker（“DataLoader worker is killed by signal: Killed”），或训练进程本身（退出码 137）。",
        "看是谁被终止、什么在增长：减少 worker，减小数据集里的缓存和 `prefetch_factor`，不要让列表无限增长。",
    ),
    "ME706": ProblemWords(
        Words("Memory grows in every loader worker", "每个 worker 各自积累内存"),
        "数据集会为每个样本留下一些东西（缓存、列表），而每个 worker 进程都有一份数据集的副本，所以每个 worker、"
        "每个 rank 都各存一份。",
        "所有 worker 共用一个缓存（共享内存、内存映射文件），上限按所有 worker 一起算；或者不用缓存。",
    ),
    "ME707": ProblemWords(
        Words("The machine is swapping", "机器在换页"),
        "内存不足，运行中进程的页面被写到磁盘再读回来；从磁盘读回一页比访问内存慢上千倍，等它的正是加载器或训练进程。",
        "减少 worker，减小缓存，关掉机器上的其他程序，直到不用交换空间也放得下。",
    ),
    "ME708": ProblemWords(
        Words("GPU memory grows with every step", "显存每一步都在增长"),
        "脚本每一步都在设备上留下张量：带计算图的损失、输出、存进列表的特征；显存满了就以 “CUDA out of memory” 结束。",
        "使用 `losses.append(loss.detach())`，或隔一段时间用 `.item()`；要保留的移到主机；给累积的容器设上限。",
    ),
    "ME709": ProblemWords(
        Words("Low hit rate of the dataset's cache", "数据集的缓存很少命中"),
        "数据集保留了解码好的样本，但要用的几乎总不在里面：LRU 淘汰的正是马上要用的，"
        "或缓存随 worker 在每个 epoch 结束时消失，或每个 worker 各有一份，只能碰巧命中。",
        "只留不淘汰：每个 epoch 各读一遍时，从不淘汰的缓存命中率最高。所有 worker 共用一个缓存（共享内存、"
        "内存映射文件）；`persistent_workers=True` 让它跨 epoch 保留。",
    ),
    "ME710": ProblemWords(
        Words("GPU memory is fragmented", "显存碎成了放不下东西的小块"),
        "torch 的分配器占着的显存远多于其中张量所需，夹在张量之间的空块小得放不下接下来要的；形状一步一变就会这样。",
        "启动脚本之前在环境里设 `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`；"
        "减少形状的种类（只填充到少数几种长度）也有帮助。",
    ),
    "ME711": ProblemWords(
        Words("Unbounded sample cache", "缓存留下了做过的每一个样本"),
        "数据集用字典或 `lru_cache(maxsize=None)` 保留做过的每个样本，没有人管它占多少内存；"
        "有 worker 时每个 worker 各存一份。",
        "统计字节数，到上限就不再收：`if self.bytes + x.nbytes < self.most:`；已有的不要淘汰。"
        "保存紧凑的形式（JPEG 字节、uint8），而不是送进模型的形式。",
    ),
}
TABLE = titles(PROBLEMS) | {
    # Whose limit it is, and how long until it is reached.
    "memory.container_limit": Words("the container's limit", "容器的内存上限"),
    "memory.machine_memory": Words("the machine's memory", "机器的内存"),
    "memory.minutes": Words("{time:.2g} min", "{time:.2g} 分钟"),
    "memory.hours": Words("{time:.2g} h", "{time:.2g} 小时"),
    "memory.days": Words("{time:.2g} days", "{time:.2g} 天"),
    "me701.cause": Words(
        "the training process retains {kept} of each step; {limit} of {size} is reached in {left}",
        "训练进程每步留下 {kept}；照此 {left}后用尽（{limit}为 {size}）",
    ),
    "me701.cause_holder": Words(
        "the training process retains {kept} of each step, and {holder} grows by {what};"
        " {limit} of {size} is reached in {left}",
        "训练进程每步留下 {kept}，{holder} 不断增加{what}；照此 {left}后用尽（{limit}为 {size}）",
    ),
    "me701.graphs": Words("tensors with their graph", "带计算图的张量"),
    "me701.tensors": Words("tensors", "张量"),
    "me701.arrays": Words("arrays", "数组"),
    "me701.change": Words(
        "find what is kept across steps: lists of losses or outputs need .detach() or .item(), and a bound",
        "找出跨步保留了什么：存损失或输出的列表要用 .detach() 或 .item()，并设上限",
    ),
    "me701.source_title": Words("Every step keeps a graph alive", "每一步都留住一张计算图"),
    "me701.source_cause": Words(
        "{holder} keeps `{value}` and everything autograd needs for it in {step}",
        "{holder} 在{step}里留住 `{value}` 以及 autograd 为它保存的一切",
    ),
    "me701.source_change": Words(
        "keep {value}.detach(), or read {value}.item() now and then",
        "保留 {value}.detach()，或隔一段时间读 {value}.item()",
    ),
    "me702.cause": Words("the run took {peak} of {limit} of {size}", "本次运行占用了 {peak}，{limit}为 {size}"),
    "me702.change_workers": Words(
        "fewer workers, a smaller prefetch_factor or a smaller cache in the dataset",
        "减少 worker，减小 prefetch_factor，或减小数据集里的缓存",
    ),
    "me702.change": Words(
        "keep less in memory: a smaller cache, memory-mapped files, narrower types",
        "少在内存里保留：减小缓存，使用内存映射文件，使用更窄的类型",
    ),
    "me703.cause": Words("{used} of the {size} of GPU {gpu} are in use", "GPU {gpu} 的 {size} 显存已占用 {used}"),
    "me703.cause_others": Words(
        "{used} of the {size} of GPU {gpu} are in use, {others} of it by other processes",
        "GPU {gpu} 的 {size} 显存已占用 {used}，其中 {others} 被其他进程占用",
    ),
    "me703.change": Words(
        "a smaller batch, bf16 or activation checkpointing; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "减小批次，使用 bf16 或激活检查点；设 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    ),
    "me704.cause": Words(
        "{retries} times in {steps} steps torch had to free all cached GPU memory",
        "{steps} 步中 torch 有 {retries} 次不得不归还全部缓存的显存",
    ),
    "me704.change": Words(
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or a smaller batch",
        "设 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True，或减小批次",
    ),
    "me705.cause": Words("the kernel killed {process}", "内核终止了{process}"),
    "me705.process_held": Words("{process}, which held {size}", "{process}，它占用 {size}"),
    "me705.process_limit": Words("{process} ({limit} is {size})", "{process}（{limit}为 {size}）"),
    "me705.main": Words("the training process", "训练进程"),
    "me705.worker": Words("a loader worker", "一个加载 worker"),
    "me705.other": Words("a process of the run", "本次运行的一个进程"),
    "me705.change_main": Words(
        "keep less in the training process: lists that grow, a cache, the whole dataset in memory",
        "让训练进程少占内存：不断增长的列表、缓存、整个读进内存的数据集",
    ),
    "me705.change_worker": Words(
        "fewer workers, a smaller cache in the dataset, a smaller prefetch_factor",
        "减少 worker，减小数据集里的缓存，减小 prefetch_factor",
    ),
    "me705.change_other": Words("keep less in memory, or give the run more", "少在内存里保留，或给本次运行更多内存"),
    "me706.cause": Words(
        "each of {workers:.0f} workers grows by {per_minute} a minute; {limit} of {size} is reached in {left}",
        "{workers:.0f} 个 worker 每个每分钟增长 {per_minute}；照此 {left}后用尽（{limit}为 {size}）",
    ),
    "me706.change": Words(
        "keep samples once for all workers, not in the dataset; a bound holds per worker, so × {workers:.0f}",
        "样本由所有 worker 共存一份，不要存在数据集里；上限是按每个 worker 算的，总量要 × {workers:.0f}",
    ),
    "me706.source_title": Words("Every loader worker keeps a cache of its own", "每个 worker 各有一份缓存"),
    "me706.each_worker": Words("each worker", "每个 worker 都"),
    "me706.each_of_workers": Words("each of the {workers} workers", "{workers} 个 worker 各自"),
    "me706.source_limited": Words(
        "{who} has its own {cache}: the limit counts once for every worker and every rank",
        "{who}有一份 {cache}：上限对每个 worker、每个 rank 各算一次",
    ),
    "me706.source_unlimited": Words(
        "{who} fills its own {cache}, which only the dataset's size bounds, once for every rank",
        "{who}填满一份 {cache}，只受数据集大小限制，每个 rank 又各有一份",
    ),
    "me706.source_change": Words(
        "one cache for all workers (shared memory, a memory-mapped file), or a limit over workers x ranks",
        "所有 worker 共用一个缓存（共享内存、内存映射文件），或把上限除以 worker 数 × rank 数",
    ),
    "me707.cause": Words(
        "{swapped} went to swap during the run, and {faults:.0f} pages a second were read back from disk",
        "运行期间有 {swapped} 被换出到交换空间，每秒从磁盘读回 {faults:.0f} 页",
    ),
    "me707.change": Words(
        "fewer workers, a smaller cache in the dataset, or more memory", "减少 worker，减小数据集里的缓存，或增加内存"
    ),
    "me708.cause": Words(
        "{kept} of each step stay on the device; its {size} are full in {left}",
        "每步有 {kept} 留在设备上；照此 {left}后它的 {size} 显存就满了",
    ),
    "me708.change": Words(
        "find what is kept across steps: losses and outputs in lists need .detach(), or .cpu(), and a bound",
        "找出跨步保留了什么：存进列表的损失和输出要用 .detach() 或 .cpu()，并设上限",
    ),
    "me709.cause": Words(
        "only {hit_rate:.0%} of the lookups in {cache} hit: {why}", "对 {cache} 的查找只有 {hit_rate:.0%} 命中：{why}"
    ),
    "me709.emptied": Words(
        "it was empty again each of the {starts} times that a worker was started",
        "worker 启动了 {starts} 次，每次启动时缓存都是空的",
    ),
    "me709.evicts": Words(
        "it holds {entries:.0f} entries and evicts those that come next",
        "它存 {entries:.0f} 项，淘汰的正是接下来要用的",
    ),
    "me709.evicts_in_workers": Words(
        "it holds {entries:.0f} entries in each of {workers} workers and evicts those that come next",
        "它在 {workers} 个 worker 中各存 {entries:.0f} 项，淘汰的正是接下来要用的",
    ),
    "me709.unbounded_lru": Words(
        "lru_cache(maxsize=None) if memory allows, else a cache that never evicts",
        "内存够就用 lru_cache(maxsize=None)，否则用从不淘汰的缓存",
    ),
    "me709.stop_adding": Words(
        "hold all samples if memory allows, else stop adding when the cache is full instead of evicting",
        "内存够就保留所有样本，否则缓存满了就不再收，而不是淘汰",
    ),
    "me709.share": Words("one cache shared by the {workers} workers", "{workers} 个 worker 共用一个缓存"),
    "me709.keep_all": Words("keep all samples", "保留所有样本"),
    "me709.source_dies": Words(
        "{cache} dies with its worker after each epoch, before any sample comes a second time",
        "{cache} 在每个 epoch 结束时随 worker 一起消失，没有样本来得及再用",
    ),
    "me709.source_dies_change": Words(
        "persistent_workers=True; better one cache for all workers, or one filled before they start",
        "persistent_workers=True；更好的是所有 worker 共用一个缓存，或在它们启动之前就填好",
    ),
    "me709.source_evicts": Words(
        "{cache} evicts samples that a shuffled epoch needs as soon as those it keeps",
        "{cache} 淘汰的样本，在打乱的 epoch 里和留下的一样快就要用到",
    ),
    "me709.source_evicts_change": Words(
        "keep what came first and evict nothing: no other policy is hit more often",
        "留住先来的，什么都不淘汰：没有别的策略命中率更高",
    ),
    "me710.cause": Words(
        "torch holds {reserved} on the device for {allocated} of tensors at most; up to {split} are in free pieces "
        "between them",
        "torch 在设备上占着 {reserved}，其中的张量最多只有 {allocated}；夹在张量之间的碎块多达 {split}",
    ),
    "me710.cause_retries": Words(
        "{cause}, and {retries} times the allocator had to free its cache and retry",
        "{cause}，分配器有 {retries} 次不得不归还缓存重试",
    ),
    "me711.source_cause": Words(
        "{cache} stores every sample and is never emptied: only the dataset's size bounds it",
        "{cache} 收下每个样本、从不清空：只受数据集大小限制",
    ),
    "me711.source_change": Words(
        "count its bytes, and store nothing more beyond a limit", "统计它的字节数，到上限就不再收"
    ),
}

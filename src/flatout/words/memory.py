"""Problems of memory: their titles, and what their detectors say."""

from __future__ import annotations

from flatout.words.table import ProblemWords, Words, titles

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
TABLE = titles(PROBLEMS) | {}

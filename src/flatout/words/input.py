"""Problems of the input pipeline: their titles, and what their detectors say."""

from __future__ import annotations

from flatout.words.table import ProblemWords, Words, titles

PROBLEMS = {
    "IN101": ProblemWords(
        Words("Batches are loaded in the main process", "批次在主进程里制作"),
        "DataLoader 的 `num_workers=0`，读取、解码和拼批都在训练进程里、夹在两个训练步之间进行；"
        "这段时间里什么都不发射，GPU 无事可做。",
        "使用 `DataLoader(..., num_workers=N, persistent_workers=True)`。"
        "N 取一步的样本所需的总制作时间除以一步其余部分的时间，且不超过 CPU 核数减一。",
    ),
    "IN102": ProblemWords(
        Words("Too few loader workers", "worker 太少，批次供不上"),
        "DataLoader 有 worker，但它们加在一起制作样本的速度赶不上训练消耗的速度，每个批次都要等。",
        "增大 `num_workers`，上限是 CPU 核数减去每个训练进程一个；如果 worker 大多在等文件，可以超过这个上限。",
    ),
    "IN103": ProblemWords(
        Words("CPU oversubscribed by loader workers and their threads", "worker 和它们的线程挤占 CPU"),
        "所有 worker 合起来需要的 CPU 核多于现有的核：每个 worker 又开了多个线程（OpenMP、BLAS、OpenCV），"
        "或者 worker 本身就比核多。发射 kernel 的训练线程抢不到核。",
        "每个 worker 只用一个线程（`torch.set_num_threads(1)`、`cv2.setNumThreads(0)`、`OMP_NUM_THREADS=1`），"
        "worker 数取 CPU 核数减去每个训练进程一个。",
    ),
    "IN104": ProblemWords(
        Words("Workers wait for storage", "worker 在等存储"),
        "制作样本耗时很长，却几乎不计算：worker 在等文件、网络盘、对象存储或内存映射文件的页面。",
        "训练前把数据拷到本地磁盘或内存，或把小文件打包成大文件；在此之前，多开 worker 可以让等待相互重叠，"
        "它们并不各占一个核。",
    ),
    "IN105": ProblemWords(
        Words("Workers are restarted every epoch", "每个 epoch 都重新启动 worker"),
        "没有 `persistent_workers=True` 时，DataLoader 在每个 epoch 结束时关闭 worker，下个 epoch 再重新启动："
        "进程、import、打开的文件、缓存全部重来，其间 GPU 空等。",
        "使用 `DataLoader(..., persistent_workers=True)`。",
    ),
    "IN106": ProblemWords(
        Words("DataLoader or its iterator is rebuilt repeatedly", "反复重建 DataLoader 或它的迭代器"),
        "DataLoader（往往连同数据集）在 epoch 循环里或评估函数里一次次新建，"
        "或者用 `next(iter(loader))` 取每个批次：每次都要重列文件、重启 worker、重新打乱索引，"
        "已预取的批次也被丢掉。",
        "在循环之前只建一次数据集和加载器，并设 `persistent_workers=True`；"
        "按步循环时保留迭代器 `batches = iter(loader)`，用 `next(batches)` 取批次，遇到 `StopIteration` 再新建。",
    ),
    "IN107": ProblemWords(
        Words("Slow collate function", "把样本拼成批次太慢"),
        "`collate_fn` 占了每个样本的很大一部分时间：用 Python 逐样本循环、靠拼接来填充、"
        "重复做本可在样本里一次做好的转换。",
        "让 `__getitem__` 直接返回类型和大小都正确的张量；一次分配整个批次再拷入（`torch.stack`，"
        "或 `empty` 加切片），不要逐元素循环。",
    ),
    "IN108": ProblemWords(
        Words("A few slow samples stall whole batches", "少数慢样本拖住整批"),
        "大多数样本很快，少数要慢很多倍：特别大的图、重试、被拒绝的样本、冷文件。批次按顺序交付，"
        "后面已经就绪的批次也只能等它。",
        "找出慢样本，让它们和其他样本一样便宜（事先缩放或缓存，限制重试次数）。增大 `prefetch_factor` 可以缓冲；"
        "不在乎顺序时可用 `DataLoader(..., in_order=False)`（torch 2.6 起）。",
    ),
    "IN109": ProblemWords(
        Words("Batch preprocessing in the training thread", "训练线程自己在处理批次"),
        "加载器交出批次之后，训练循环还要用 NumPy、OpenCV、PIL 或纯 Python 去解码、增强、分词或填充，"
        "然后才交给模型；而能做这些事的 worker 却闲着。",
        "把这些工作移到数据集的 `__getitem__` 或 `collate_fn` 里，让 worker 去做；"
        "或用 torch 在设备上对整个批次一次完成。",
    ),
    "IN110": ProblemWords(
        Words("Samples are decoded again every epoch", "每个 epoch 都重做样本，而 CPU 跟不上"),
        "每个 epoch 都重新读取并解码相同的样本。可用于加载的核已全部在忙，仍然不够：再加 worker 也只是分摊同样的核。",
        "把每次都相同的部分只做一次并保留下来：解码、缩放后的数组放进内存或内存映射文件，随机增强放在缓存之后。"
        "缓存不要淘汰。",
    ),
    "IN111": ProblemWords(
        Words("Slow sampler", "抽取索引拖住主进程"),
        "无论有多少 worker，sampler 都在训练进程里运行。若它为每个索引都做一番计算（每次从全部权重里重抽、排序、"
        "读文件），每个批次都被推迟。",
        "在 `__iter__` 开头一次抽好整个 epoch 的索引（`rng.choice(n, size, p=weights)`、`torch.multinomial`、"
        "`torch.randperm`），之后只逐个交出。",
    ),
    "IN112": ProblemWords(
        Words("Prefetch too shallow for uneven batch times", "预取太少，填不平快慢不均"),
        "平均来看 worker 够快，但 `prefetch_factor` 只让它们领先几个批次：一个慢批次，或一阵很快的训练步，"
        "就把就绪的批次用光了。",
        "增大 `prefetch_factor`，使就绪的批次能撑过最慢的一个批次。",
    ),
    "IN113": ProblemWords(
        Words("Full-size decode, then crop", "先做出整个样本，再裁掉大部分"),
        "数据集先转换、缩放或体素化整帧、整个体积或整段记录，然后只裁下一小块；花在被裁掉部分上的工作全部白费。",
        '先抽取裁剪位置，只读那一块（`np.load(path, mmap_mode="r")`、`np.memmap`、带偏移的 `np.fromfile`），'
        "再做转换、缩放或滤波；滤波要看邻域时留出边缘。",
    ),
    "IN114": ProblemWords(
        Words("Dataset stored as many small files", "样本散落在大量小文件里"),
        "每个样本（或每个事先做好的小批次）是一个只有几 KB 的文件。查找、打开、解析文件头、"
        "关闭的开销与文件大小无关，worker 一直在开文件。",
        '把样本一次性打包成少数几个大文件：可内存映射的数组（`np.load(path, mmap_mode="r")`）、HDF5、Arrow、'
        "WebDataset 分片或 LMDB。",
    ),
    "IN115": ProblemWords(
        Words("Cached samples are cloned on every access", "内存里的样本交出之前又被拷贝一遍"),
        "`__getitem__` 或缓存返回 `self.cache[i].clone()` 或 `copy.deepcopy(...)`："
        "完整拷贝一个没有人会去修改的样本，而拼批时本来就要再拷贝一次。",
        "直接返回元素本身：`return self.cache[i]`。若增强会原地修改样本，只拷贝它要改的部分，或让它生成新张量，"
        "如 `x = x.flip(-1)`。",
    ),
    "IN116": ProblemWords(
        Words("Training with batch size 1", "训练每次只取一个样本"),
        "训练用的 DataLoader 写死了 `batch_size=1`，或没有写（默认就是 1）。"
        "一个样本和三十个样本发射的 kernel 一样多，但每个都小得填不满设备。",
        "在显存允许的范围内用大一些的批次，并把它做成可配置项；样本大小不一时按相近大小分组或填充，"
        "学习率随之调整。改用梯度累积并不会减少发射次数。",
    ),
    "IN117": ProblemWords(
        Words("New shared memory for every large batch", "大批次每次都放在新的内存里"),
        "torch 的 worker 把每个批次写进新的共享内存。训练进程要映射它、第一次触碰每一页，用完再全部释放："
        "每 MiB 几百微秒，与样本多简单无关。固定内存的批次由另一个线程处理，但释放时握着 Python 的锁，"
        "训练线程此时什么也发射不了。",
        "用 `flatout.DataLoader`，或从外部用 `loader.workers`：worker 反复使用同一块内存。元素小一些也有用："
        "图像以字节传送，到设备上再转成浮点数。",
    ),
}
TABLE = titles(PROBLEMS) | {}

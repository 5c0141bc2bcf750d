"""Problems of the input pipeline: their titles, and what their detectors say."""

from __future__ import annotations

from .render import ProblemWords, Words, titles

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
    "IN118": ProblemWords(
        Words("Making the samples takes too long", "生成样本太慢"),
        "训练在等批次，而没有其他输入问题能解释它。时间花在数据集、变换或 collate 函数的某些行上。",
        "让这些行更快或更少执行：把数据预先处理好存下来，缓存会再次用到的结果，只读用到的部分，用数组运算代替逐个元素，"
        "能成批做的移到设备上。只要有空闲的处理器，更多 worker 也有帮助。",
    ),
    "IN119": ProblemWords(
        Words("Every worker makes all samples and keeps its part", "每个 worker 都做全部样本，只留下自己的一份"),
        "几个 worker 共用的 `IterableDataset` 先读取、解码或解析每个样本，然后才判断它属于谁："
        "n 个样本中有 n-1 个白做，worker 再多也不会更快。",
        "先判断，再处理：`if n % workers == worker: yield decode(record)`；最好让每个 worker 有自己的文件："
        "`files[worker::workers]`。",
    ),
    "IN120": ProblemWords(
        Words("Batches carry more memory than they show", "批次带着比自身大得多的内存"),
        "数据集返回整段录音、文档或表格的一个切片（`motion[start:end]`）。切片只是视图，背后是整个张量的内存："
        "torch 的 worker 为每个批次把它全部拷进共享内存，训练进程用完再全部释放。",
        "返回或 yield 之前先 `motion[start:end].clone()`：只拷贝真正要送的部分。",
    ),
}
TABLE = titles(PROBLEMS) | {
    "in120.cause": Words(
        "batches of {shown_mib:.3g} MiB are views of larger tensors: workers send {carried_mib:.3g} MiB for each. The"
        " rest takes the workers {sending_ms:.3g} ms of a {step_ms:.3g} ms step to send, and the training"
        " {freeing_ms:.3g} ms to free",
        "{shown_mib:.3g} MiB 的批次是更大张量的视图：worker 每次送出 {carried_mib:.3g} MiB；"
        "多出的部分在每步 {step_ms:.3g} ms 中让 worker 用 {sending_ms:.3g} ms 发送，释放再占 {freeing_ms:.3g} ms",
    ),
    "in120.change": Words(
        "copy the slice before it is returned or yielded: `tensor[start:end].clone()`",
        "返回或 yield 切片之前先拷贝：`tensor[start:end].clone()`",
    ),
    "in119.cause": Words(
        "{line} shares samples out among {workers} workers when each of them has made them all: {share:.0%} of a"
        " worker's time",
        "{line} 在 {workers} 个 worker 各自做完全部样本之后才分配：占 worker 时间的 {share:.0%}",
    ),
    "in119.change": Words(
        "ask whose a sample is before it is read or decoded, or give each worker files of its own",
        "读取或解码之前先判断样本属于谁，或让每个 worker 有自己的文件",
    ),
    "in118.cause": Words(
        "the training waits for data for {wait_ms:.3g} of each {step_ms:.3g} ms step",
        "训练在每步 {step_ms:.3g} ms 中等待数据 {wait_ms:.3g} ms",
    ),
    "in118.cause_line": Words(
        "the training waits for data for {wait_ms:.3g} of each {step_ms:.3g} ms step; {share:.0%} of it is spent at"
        " {line} ({function})",
        "训练在每步 {step_ms:.3g} ms 中等待数据 {wait_ms:.3g} ms；其中 {share:.0%} 花在 {line}（{function}）",
    ),
    "in118.cause_worker": Words(
        "the training waits for data for {wait_ms:.3g} of each {step_ms:.3g} ms step; a worker spends {share:.0%}"
        " of its time at {line} ({function})",
        "训练在每步 {step_ms:.3g} ms 中等待数据 {wait_ms:.3g} ms；"
        "worker 有 {share:.0%} 的时间花在 {line}（{function}）",
    ),
    "in118.cause_loop": Words(
        "{cause}; {share:.0%} of a sample is the loop of lines {first} to {last}, in Python",
        "{cause}；其中 {share:.0%} 是第 {first} 到 {last} 行的 Python 循环",
    ),
    "in118.change_loop": Words(
        "do lines {first} to {last} for the whole array at once, with NumPy or torch, instead of one element at a time",
        "把第 {first} 到 {last} 行改为用 NumPy 或 torch 对整个数组一次完成，不要逐个元素处理",
    ),
    "in118.cause_python": Words(
        "{cause}. {share:.0%} of making samples is Python code", "{cause}。制作样本的时间有 {share:.0%} 是 Python 代码"
    ),
    "in118.cause_native": Words(
        "{cause}. {share:.0%} of making samples is native code (decoding, numpy and the like)",
        "{cause}。制作样本的时间有 {share:.0%} 是原生代码（解码、numpy 等）",
    ),
    "in118.cause_storage": Words(
        "{cause}. {share:.0%} of making samples is waiting for files, pipes or sockets",
        "{cause}。制作样本的时间有 {share:.0%} 在等待文件、管道或套接字",
    ),
    "in118.cause_waiting": Words(
        "{cause}. {share:.0%} of making samples is waiting for threads, processes or timers",
        "{cause}。制作样本的时间有 {share:.0%} 在等待线程、进程或定时器",
    ),
    "in118.cause_crowded": Words(
        "{cause}. For {share:.0%} of making samples a worker was ready to run, but no processor was free",
        "{cause}。制作样本的时间有 {share:.0%} worker 可以运行但没有空闲的处理器",
    ),
    "in118.change_python": Words(
        "work on whole arrays instead of single elements there, or do it once and store the result",
        "在那里对整个数组而不是单个元素操作，或只做一次并存下结果",
    ),
    "in118.change_native": Words(
        "do it once and store the result, do it on less (crop or shrink first), or on the device in batches",
        "只做一次并存下结果，或处理更少的数据（先裁剪或缩小），或成批地在设备上做",
    ),
    "in118.change_storage": Words(
        "read from faster storage, read larger pieces, keep what is read in memory, or give the loader more workers"
        " that wait at the same time",
        "从更快的存储读取，每次读取更大的块，把读到的数据留在内存，或用更多同时等待的 worker",
    ),
    "in118.change_waiting": Words(
        "avoid the wait there, or give the loader more workers that wait at the same time",
        "避免在那里等待，或用更多同时等待的 worker",
    ),
    "in118.change_crowded": Words(
        "use fewer workers or more processors, and make these lines cheaper",
        "减少 worker 或增加处理器，并让这些行更快",
    ),
    "in118.change": Words(
        "make these lines cheaper, do them once and store the result, or give the loader more workers",
        "让这些行更快，或只做一次并存下结果，或增加 worker",
    ),
    # What several problems say of a gain.
    "in101.cause": Words(
        "the main process spends {data_ms:.3g} of each {step_ms:.3g} ms step loading the batch",
        "每步 {step_ms:.3g} ms 中主进程花 {data_ms:.3g} ms 制作批次",
    ),
    "in101.source_cause": Words(
        "{setting}: the training process loads every batch itself", "{setting}：训练进程自己制作每个批次"
    ),
    "in101.source_change": Words(
        "num_workers=N, persistent_workers=True; N from 4 up to the number of CPUs less one",
        "num_workers=N, persistent_workers=True；N 从 4 起，至多为 CPU 核数减一",
    ),
    "in102.cause": Words(
        "loading a step's samples takes {work_ms:.3g} ms in one process, {each_ms:.3g} ms over {workers} workers, but "
        "the training could take them every {computing_ms:.3g} ms",
        "加载一步的样本，单个进程要 {work_ms:.3g} ms，{workers} 个 worker 分担要 {each_ms:.3g} ms，"
        "而训练每 {computing_ms:.3g} ms 就能用掉这么多",
    ),
    "in102.cause_with_setting": Words("{cause}; {setting}", "{cause}；{setting}"),
    "in102.set_by": Words("{setting} is {value} by {place}", "{setting} 由 {place} 设为 {value}"),
    "in102.set_by_over": Words(
        "{setting} is {value} by {place}, over {base_value} by {base_place}",
        "{setting} 由 {place} 设为 {value}，覆盖了 {base_place} 的 {base_value}",
    ),
    "in103.cause": Words(
        "{workers} busy workers with {threads:.2g} computing threads each compete for {cpus:g} CPUs; the training "
        "thread gets none for {lost_ms:.3g} of each {step_ms:.3g} ms step",
        "{workers} 个忙碌的 worker 各有 {threads:.2g} 个计算线程，争用 {cpus:g} 个核；"
        "每步 {step_ms:.3g} ms 中训练线程有 {lost_ms:.3g} ms 抢不到核",
    ),
    "in103.change_threads": Words(
        "num_workers={workers}, torch.set_num_threads(1) in the workers",
        "num_workers={workers}，并在 worker 里 torch.set_num_threads(1)",
    ),
    "in103.source_all_cpus": Words(
        "`{code}` counts every CPU of the machine, also those of other ranks and those this process may not use, and "
        "leaves none for the training",
        "`{code}` 数的是整台机器的核，包括其他 rank 的和本进程不能用的，一个也没有留给训练",
    ),
    "in103.source_many": Words(
        "{setting} is {value} for each training process, on any machine: workers beyond its CPUs slow it down",
        "{setting} 是 {value}，每个训练进程都这样，不论什么机器：超出核数的 worker 只会拖慢训练",
    ),
    "in103.source_change": Words(
        "as many as feed the training, at most (len(os.sched_getaffinity(0)) - ranks) // ranks on a node",
        "够供训练用即可，每个节点至多 (len(os.sched_getaffinity(0)) - ranks) // ranks",
    ),
    "in104.cause": Words(
        "a worker takes {sample_ms:.3g} ms for a sample and waits for {waiting_share:.0%} of that",
        "worker 制作一个样本要 {sample_ms:.3g} ms，其中 {waiting_share:.0%} 在等待",
    ),
    "in104.cause_on": Words("{cause}, with the data on {filesystem}", "{cause}，数据在 {filesystem}"),
    "in104.filesystem": Words("{type} at {mount_point} ({kind})", "{mount_point}，文件系统是 {type}（{kind}）"),
    "in104.network": Words("network", "网络盘"),
    "in104.rotating_disk": Words("rotating disk", "机械硬盘"),
    "in104.change": Words(
        "copy the data to a local SSD or to memory, or pack it into few large files",
        "把数据拷到本地 SSD 或内存，或打包成少数大文件",
    ),
    "in104.change_meanwhile": Words(
        "{change}; meanwhile num_workers={workers}, so that their waits overlap",
        "{change}；在此之前用 num_workers={workers}，让等待相互重叠",
    ),
    "in105.cause": Words(
        "the {workers} workers are started {epochs} times, which stalls the training for {each_ms:.3g} ms each time",
        "{workers} 个 worker 被启动 {epochs} 次，每次让训练停 {each_ms:.3g} ms",
    ),
    "in105.source_cause": Words(
        "its workers exit after each epoch and are started again for the next, which waits for them",
        "它的 worker 在每个 epoch 结束时退出，下个 epoch 又要重新启动并等待它们",
    ),
    "in106.cause": Words(
        "{loaders} equal loaders were made at this line; making and starting them takes {start_ms:.3g} ms of a mean "
        "{step_ms:.3g} ms step",
        "这一行建了 {loaders} 个相同的加载器；新建和启动它们占平均每步 {step_ms:.3g} ms 中的 {start_ms:.3g} ms",
    ),
    "in106.change": Words(
        "make the dataset and the DataLoader once, before the loop", "在循环之前只建一次数据集和 DataLoader"
    ),
    "in106.change_persistent": Words(
        "make the dataset and the DataLoader once, before the loop, with persistent_workers=True",
        "在循环之前只建一次数据集和 DataLoader，并设 persistent_workers=True",
    ),
    "in106.iterators": Words(
        "{iterators} iterators were made in {steps} steps; each step waits {data_ms:.3g} ms for the first batch of a "
        "new one",
        "{steps} 步里建了 {iterators} 个迭代器；每步等新迭代器的第一个批次 {data_ms:.3g} ms",
    ),
    "in106.keep_iterator": Words(
        "keep the iterator: `batches = iter(loader)` once, `next(batches)` each step, a new one at StopIteration",
        "保留迭代器：`batches = iter(loader)` 只做一次，每步 `next(batches)`，遇到 StopIteration 再新建",
    ),
    "in106.source_cause": Words(
        "the loop in line {line} makes this loader again at each iteration: its workers restart and nothing is "
        "prefetched",
        "第 {line} 行的循环每一轮都重建这个加载器：worker 重新启动，预取也从头开始",
    ),
    "in106.source_next": Words(
        "{step} begins a new epoch for one batch and discards what was prefetched",
        "{step}都为一个批次开始新的 epoch，丢掉已预取的批次",
    ),
    "in107.cause": Words(
        "`{collate_fn}` takes {collate_ms:.3g} ms for the samples of a step, {share:.0%} of what they cost",
        "`{collate_fn}` 处理一步的样本要 {collate_ms:.3g} ms，占制作这些样本所用时间的 {share:.0%}",
    ),
    "in107.change": Words(
        "return ready tensors from the dataset and only stack them in the collate_fn",
        "让数据集直接返回做好的张量，collate_fn 里只做 stack",
    ),
    "in107.source_cat": Words(
        "`{code}` copies everything collected so far for each sample", "`{code}` 每加一个样本就把已有的全部拷贝一遍"
    ),
    "in107.source_cat_change": Words(
        "collect the samples in a list and torch.cat or torch.stack it once, after the loop",
        "把样本收进列表，循环之后只做一次 torch.cat 或 torch.stack",
    ),
    "in107.source_element": Words(
        "`{code}` is written one element at a time, each with a call of its own",
        "`{code}` 逐个元素写入，每个都是一次调用",
    ),
    "in107.source_element_change": Words(
        "write whole rows, out[i, :len(row)] = torch.as_tensor(row), or pad_sequence",
        "整行写入：out[i, :len(row)] = torch.as_tensor(row)，或用 pad_sequence",
    ),
    "in108.cause": Words(
        "{late_share:.1%} of the steps wait for a late batch (the slowest took {slowest_ms:.3g} ms, a mean one "
        "{mean_ms:.3g} ms); together {late_ms:.3g} ms of a mean {step_ms:.3g} ms step",
        "{late_share:.1%} 的步在等迟到的批次（最慢的用了 {slowest_ms:.3g} ms，平均 {mean_ms:.3g} ms）；"
        "合计占平均每步 {step_ms:.3g} ms 中的 {late_ms:.3g} ms",
    ),
    "in108.change": Words(
        "make the slow samples of the dataset as cheap as the others, or in_order=False (torch 2.6)",
        "让数据集里的慢样本和其他样本一样便宜，或用 in_order=False（torch 2.6）",
    ),
    "in108.change_prefetch": Words(
        "{change}; prefetch_factor={prefetch} bridges them", "{change}；prefetch_factor={prefetch} 可以缓冲它们"
    ),
    "in109.cause": Words(
        "{place} and similar lines process the batch for {moved_ms:.3g} of each {step_ms:.3g} ms step, in the training "
        "thread",
        "每步 {step_ms:.3g} ms 中，{place} 等行在训练线程里处理批次用去 {moved_ms:.3g} ms",
    ),
    "in109.change": Words(
        "do what {place} does in the dataset's __getitem__ or the collate function",
        "把 {place} 做的事移到数据集的 __getitem__ 或 collate 函数里",
    ),
    "in109.change_workers": Words("{change}, with num_workers of at least 1", "{change}，并让 num_workers 至少为 1"),
    "in109.source_cause": Words(
        "`{code}` {work} in {step}, while the workers could", "`{code}` 在{step}里{work}，而这本可以由 worker 做"
    ),
    "in109.tokenizes": Words("tokenizes text", "分词"),
    "in109.round_trip": Words("takes the batch to NumPy and back", "把批次转成 NumPy 再转回来"),
    "in109.library": Words("processes data with {library}", "用 {library} 处理数据"),
    "in109.source_change": Words(
        "do it in the dataset's __getitem__ or the collate function; or on the device, for the whole batch",
        "移到数据集的 __getitem__ 或 collate 函数里；或在设备上对整个批次一次完成",
    ),
    "in110.cause": Words(
        "each of {samples} samples is decoded {times:.2g} times, {sample_ms:.3g} ms each time: more than {cpus:g} CPUs "
        "can do beside the training",
        "{samples} 个样本每个都制作了 {times:.2g} 次，每次 {sample_ms:.3g} ms：训练之外 {cpus:g} 个核做不过来",
    ),
    "in110.change": Words("keep decoded samples in memory", "把解码后的样本留在内存里"),
    "in110.change_part": Words(
        "keep decoded samples in memory, {kept_share:.0%} of them, never evicted",
        "把解码后的样本留在内存里，留其中的 {kept_share:.0%}，永不淘汰",
    ),
    "in111.cause": Words(
        "the main process spends {drawing_ms:.3g} of each {step_ms:.3g} ms step drawing indices in `{function}`",
        "每步 {step_ms:.3g} ms 中主进程花 {drawing_ms:.3g} ms 在 `{function}` 里抽取索引",
    ),
    "in111.change": Words(
        "draw the indices of a whole epoch at once at the start of the sampler's __iter__",
        "在 sampler 的 __iter__ 开头一次抽好整个 epoch 的索引",
    ),
    "in111.source_cause": Words(
        "`{code}` goes through all samples for each draw, in the training process",
        "`{code}` 每抽一次都要遍历全部样本，而且在训练进程里",
    ),
    "in111.source_change": Words(
        "draw all indices of the epoch at once before the loop, then only hand them out",
        "在循环之前一次抽好整个 epoch 的索引，之后只逐个交出",
    ),
    "in112.cause": Words(
        "{empty_share:.0%} of the steps find no batch ready, though the workers are idle for {idle_share:.0%} of the "
        "time: the batches prefetched ({prefetch} for each worker) do not last while a batch takes {slowest_ms:.3g} ms",
        "{empty_share:.0%} 的步没有就绪的批次，而 worker 有 {idle_share:.0%} 的时间闲着："
        "预取的批次（每个 worker {prefetch} 个）撑不过最慢批次的 {slowest_ms:.3g} ms",
    ),
    "in113.cause": Words(
        "{wasted_ms:.3g} of the {sample_ms:.3g} ms of a sample go into data that {place} then crops",
        "每个样本 {sample_ms:.3g} ms 中有 {wasted_ms:.3g} ms 花在随后被 {place} 裁剪的数据上",
    ),
    "in113.cause_kept": Words("{cause}, of which it keeps {kept_share:.0%}", "{cause}，裁剪只留下 {kept_share:.0%}"),
    "in113.change": Words(
        "draw the crop first and do what {place} does to the cropped part only",
        "先抽取裁剪位置，{place} 的处理只对裁下的部分做",
    ),
    "in113.source_cause": Words(
        "it crops what line {line} has computed for the whole sample", "它裁剪的是第 {line} 行对整个样本算出来的结果"
    ),
    "in113.source_cause_kept": Words("{cause}, and keeps {kept_share:.0%}", "{cause}，只留下 {kept_share:.0%}"),
    "in113.source_change": Words(
        "draw the crop first, and do what line {line} does to the cropped part only",
        "先抽取裁剪位置，第 {line} 行的处理只对裁下的部分做",
    ),
    "in114.cause": Words(
        "{place} takes {file_ms:.3g} ms for a file of {file_kib:.3g} KiB: to open it, not to read it",
        "{place} 处理一个 {file_kib:.3g} KiB 的文件要 {file_ms:.3g} ms：花在打开上，而不是读取上",
    ),
    "in114.change": Words(
        "put the samples into one memory-mapped array or few large files", "把样本放进一个内存映射数组或少数大文件"
    ),
    "in115.cause": Words(
        "copies of `{code}` take {copy_ms:.3g} ms for the samples of a step, {share:.0%} of what they cost",
        "拷贝 `{code}` 使一步的样本多花 {copy_ms:.3g} ms，占制作这些样本所用时间的 {share:.0%}",
    ),
    "in115.source_cause": Words(
        "each sample is copied from `{code}`, and once more when the batch is collated",
        "每个样本都从 `{code}` 拷贝一次，拼批时又拷贝一次",
    ),
    "in115.source_change": Words(
        "return the element itself; copy only what is changed in place", "直接返回元素本身；只拷贝会被原地修改的部分"
    ),
    "in116.default": Words("batch_size is not given, and 1 by default", "没有设 batch_size，默认是 1"),
    "in116.written": Words("batch_size=1 is hard-coded", "写死了 batch_size=1"),
    "in116.source_cause": Words(
        "{setting}: each step launches all its kernels for a single sample",
        "{setting}：每步都为一个样本发射全部 kernel",
    ),
    "in116.source_change": Words(
        "batch_size from a setting, as large as memory allows", "batch_size 做成可配置项，在显存允许的范围内尽量大"
    ),
    "in117.cause": Words(
        "{mib:.3g} MiB a step come from workers in newly mapped memory: mapping and freeing it takes about "
        "{taken_ms:.3g} of each {step_ms:.3g} ms step",
        "每步有 {mib:.3g} MiB 由 worker 放在新的内存里送来：映射和释放约占每步 {step_ms:.3g} ms 中的 {taken_ms:.3g} ms",
    ),
    "in117.change": Words(
        "flatout.DataLoader, whose workers reuse their memory",
        "改用 flatout.DataLoader：它的 worker 反复使用同一块内存",
    ),
}

"""What detectors of input say of a run, in Chinese.

Times that pass a second now and then come as `1.2e+03`: such a gap takes anything.
"""

from __future__ import annotations

SAID_INPUT = {
    # Several: feeding.py and epochs.py
    "a step is the slowest of: computing {n} ms, {}": "一步的时间取最慢者：计算 {0} ms，{1}",
    "loading {n} ms over {n} workers, {n} processors": "加载共 {0} ms 由 {1} 个 worker 分担，{2} 个核",
    "{n} starts of {} ms each go, {n} ms of a mean step": "省去 {0} 次启动（每次 {1} ms），平均每步 {2} ms",
    # IN101
    "the main process spends {n} of each {n} ms step making the batch": "每步 {1} ms 中主进程花 {0} ms 制作批次",
    # IN102
    "loading a step's samples takes {n} ms of one process, {n} ms over {n} workers, but the training could take them "
    "every {n} ms": ("加载一步的样本，单个进程要 {0} ms，{2} 个 worker 分担要 {1} ms，而训练每 {3} ms 就能用掉这么多"),
    "loading a step's samples takes {n} ms of one process, {n} ms over {n} workers, but the training could take them "
    "every {n} ms{}": (
        "加载一步的样本，单个进程要 {0} ms，{2} 个 worker 分担要 {1} ms，而训练每 {3} ms 就能用掉这么多{4}"
    ),
    "; {} is {} by {}, over {} by {}": "；{0} 由 {2} 设为 {1}，覆盖了 {4} 的 {3}",
    "; {} is {} by {}": "；{0} 由 {2} 设为 {1}",
    # IN103
    "{n} busy workers with {n} computing threads each want {n} processors; the training thread gets none for {n} of "
    "each {n} ms step": (
        "{0} 个忙碌的 worker 各有 {1} 个计算线程，争用 {2} 个核；每步 {4} ms 中训练线程有 {3} ms 抢不到核"
    ),
    "num_workers={n}, torch.set_num_threads(1) in the workers": (
        "num_workers={0}，并在 worker 里 torch.set_num_threads(1)"
    ),
    "a step is the slower of: {}": "一步的时间取较慢者：{0}",
    "computing {n} ms undisturbed, loading {n} ms over {n} workers of one thread": (
        "不受干扰的计算 {0} ms，加载共 {1} ms 由 {2} 个单线程 worker 分担"
    ),
    # IN104
    "a worker takes {n} ms for a sample and waits for {} of that": "worker 制作一个样本要 {0} ms，其中 {1} 在等待",
    "a worker takes {n} ms for a sample and waits for {} of that{}": (
        "worker 制作一个样本要 {0} ms，其中 {1} 在等待{2}"
    ),
    ", with the data on {} at {} ({})": "，数据在 {1}，文件系统是 {0}（{2}）",
    "rotating disk": "机械硬盘",
    "copy the data to a local SSD or to memory, or pack it into few large files": (
        "把数据拷到本地 SSD 或内存，或打包成少数大文件"
    ),
    "{}; meanwhile num_workers={n}: they wait at the same time": "{0}；在此之前用 num_workers={1}，让等待相互重叠",
    "loading {n} ms over {n} workers that no longer wait": "{1} 个不再等待的 worker 加载要 {0} ms",
    # IN105
    "the {n} workers are started {n} times, which holds the training up for {} ms each time": (
        "{0} 个 worker 被启动 {1} 次，每次让训练停 {2} ms"
    ),
    # IN106
    "{n} equal loaders were made at this line; making and starting them takes {n} ms of a mean {n} ms step": (
        "这一行建了 {0} 个相同的加载器；新建和启动它们占平均每步 {2} ms 中的 {1} ms"
    ),
    "make the dataset and the DataLoader once, before the loop": "在循环之前只建一次数据集和 DataLoader",
    "make the dataset and the DataLoader once, before the loop, with persistent_workers=True": (
        "在循环之前只建一次数据集和 DataLoader，并设 persistent_workers=True"
    ),
    "{n} iterators were made in {n} steps; each step waits {n} ms for the first batch of a new one": (
        "{1} 步里建了 {0} 个迭代器；每步等新迭代器的第一个批次 {2} ms"
    ),
    "keep the iterator: `batches = iter(loader)` once, `next(batches)` each step, anew at StopIteration": (
        "保留迭代器：`batches = iter(loader)` 只做一次，每步 `next(batches)`，遇到 StopIteration 再新建"
    ),
    "loading {n} ms over {n} workers; ending them took {n} ms": (
        "加载共 {0} ms 由 {1} 个 worker 分担；此前结束 worker 要 {2} ms"
    ),
    "what a wait takes beyond making its batch goes": "省去等待中超出制作批次的那部分时间",
    # IN107
    "`{}` takes {n} ms for the samples of a step, {} of what they cost": (
        "`{0}` 处理一步的样本要 {1} ms，占制作这些样本所用时间的 {2}"
    ),
    "return ready tensors from the dataset and only stack them in the collate_fn": (
        "让数据集直接返回做好的张量，collate_fn 里只做 stack"
    ),
    "loading {n} ms without the collating": "加载 {0} ms（不含拼批）",
    "collating {n} ms a step goes": "省去每步拼批的 {0} ms",
    # IN108
    "{} of the steps wait for a late batch (the slowest took {} ms, a mean one {n} ms); together {n} ms of a mean {n} "
    "ms step": "{0} 的步在等迟到的批次（最慢的用了 {1} ms，平均 {2} ms）；合计占平均每步 {4} ms 中的 {3} ms",
    "make the slow samples of the dataset as cheap as the others, or in_order=False (torch 2.6)": (
        "让数据集里的慢样本和其他样本一样便宜，或用 in_order=False（torch 2.6）"
    ),
    "{}; prefetch_factor={n} bridges them": "{0}；prefetch_factor={1} 可以缓冲它们",
    "the late waits and those they cause, {n} ms of a mean step, go": (
        "省去迟到批次的等待和由它们引起的等待，平均每步 {0} ms"
    ),
    # IN109
    "{} and the like work on the batch for {n} of each {n} ms step, in the thread that trains": (
        "每步 {2} ms 中，{0} 等行在训练线程里处理批次用去 {1} ms"
    ),
    "do what {} does in the dataset's __getitem__ or the collate function": (
        "把 {0} 做的事移到数据集的 __getitem__ 或 collate 函数里"
    ),
    "do what {} does in the dataset's __getitem__ or the collate function{}": (
        "把 {0} 做的事移到数据集的 __getitem__ 或 collate 函数里{1}"
    ),
    ", with num_workers of at least 1": "，并让 num_workers 至少为 1",
    "{n} ms a step go to the workers, which then load {n} ms over {n} of them": (
        "每步 {0} ms 移给 worker，之后加载共 {1} ms 由 {2} 个 worker 分担"
    ),
    # IN110
    "each of {n} samples is made {} times, {n} ms each time: more than {n} processors can do beside the training": (
        "{0} 个样本每个都制作了 {1} 次，每次 {2} ms：训练之外 {3} 个核做不过来"
    ),
    "keep decoded samples in memory": "把解码后的样本留在内存里",
    "keep decoded samples in memory{}": "把解码后的样本留在内存里{0}",
    ", {} of them, never evicted": "，留其中的 {0}，永不淘汰",
    "{} of the samples cost a copy for {} of their {n} ms; at best for all": (
        "{0} 的样本，每个 {2} ms 中的 {1} 换成一次拷贝；最好时全部换成拷贝"
    ),
    # IN111
    "the main process spends {n} of each {n} ms step drawing indices in `{}`": (
        "每步 {1} ms 中主进程花 {0} ms 在 `{2}` 里抽取索引"
    ),
    "draw the indices of a whole epoch at once at the start of the sampler's __iter__": (
        "在 sampler 的 __iter__ 开头一次抽好整个 epoch 的索引"
    ),
    "{n} ms a step before a ready batch is handed over go": "省去每步交出就绪批次之前的 {0} ms",
    # IN112
    "{} of the steps find no batch ready, though the workers are idle for {} of the time: what is made ahead ({n} for "
    "each worker) does not last while a batch takes {} ms": (
        "{0} 的步没有就绪的批次，而 worker 有 {1} 的时间闲着：预取的批次（每个 worker {2} 个）撑不过最慢批次的 {3} ms"
    ),
    "loading {n} ms over {n} workers on average": "平均加载共 {0} ms 由 {1} 个 worker 分担",
    # IN113
    "{n} of the {n} ms of a sample go to what {} then crops": "每个样本 {1} ms 中有 {0} ms 花在随后被 {2} 裁剪的数据上",
    "{n} of the {n} ms of a sample go to what {} then crops{}": (
        "每个样本 {1} ms 中有 {0} ms 花在随后被 {2} 裁剪的数据上{3}"
    ),
    ", of which it keeps {}": "，裁剪只留下 {0}",
    "draw the crop first and do what {} does to the cropped part only": ("先抽取裁剪位置，{0} 的处理只对裁下的部分做"),
    "{} of a sample's work is done on the part that is kept{}": "样本工作量的 {0} 改为只对留下的部分做{1}",
    ", {n}%": "（占 {0}%）",
    ": {} is assumed, {} at best": "（假定占 {0}，最好时 {1}）",
    # IN114
    "{} takes {n} ms for a file of {n} KiB: to open it, not to read it": (
        "{0} 处理一个 {2} KiB 的文件要 {1} ms：花在打开上，而不是读取上"
    ),
    "put the samples into one memory-mapped array or few large files": "把样本放进一个内存映射数组或少数大文件",
    "{} is left of opening, which is {} of a sample": "打开文件占样本时间的 {1}，之后只剩其中的 {0}",
    # IN117
    "{} MiB a step come from workers in memory that is new each time: to map and free it takes about {} of each {} ms "
    "step": "每步有 {0} MiB 由 worker 放在新的内存里送来：映射和释放约占每步 {2} ms 中的 {1} ms",
    "flatout.DataLoader, whose workers use their memory again": (
        "改用 flatout.DataLoader：它的 worker 反复使用同一块内存"
    ),
    "mapping and freeing {} MiB takes {} ms a MiB here": "在这台机器上映射和释放 {0} MiB，每 MiB 要 {1} ms",
}

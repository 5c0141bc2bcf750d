"""Remedies of loaders, copies and waits: why one is or is not used, and what it did."""

from __future__ import annotations

from .render import Words

TABLE: dict[str, Words] = {
    "remedy.no_function": Words("{module} has no function {function!r}", "{module} 中没有函数 {function!r}"),
    "remedy.script_sets_it": Words("the script sets it itself", "脚本自己设置了它"),
    "remedy.on_cpu": Words("it ran on the CPU", "运行在 CPU 上"),
    "remedy.on_already": Words("it is on already", "已经开启"),
    "remedy.script_sets": Words("the script sets it itself, to {value!r}", "脚本自己把它设为 {value!r}"),
    "remedy.joined": Words("{first}; {second}", "{first}；{second}"),
    "torch.built_without_cuda": Words("this torch is built without CUDA", "这个 torch 构建时没有 CUDA"),
    "torch.no_cuda": Words("this torch has no CUDA", "这个 torch 没有 CUDA"),
    "streams.own": Words("the script works with CUDA streams of its own", "脚本使用自己的 CUDA 流"),
    "launches.no_wait": Words("launching operations was not seen to hold the GPU up", "没有看到发射操作拖住 GPU"),
    "launches.gpu_waits": Words(
        "the GPU waits while the host launches many small operations", "主机发射大量小操作时 GPU 在等待"
    ),
    "batch.small_kernels": Words("each kernel occupies a small part of the GPU", "每个 kernel 只占用 GPU 的一小部分"),
    "batch.set": Words("batch_size {before} → {after}", "batch_size {before} → {after}"),
    "batch.large_enough": Words("the batches are large enough for the device", "批次对设备来说已经够大"),
    "batch.no_size": Words("it has no batch size of its own", "它没有自己的批大小"),
    "batch.of_one": Words("a batch of one may hold a batch each", "批大小为 1 时，每个样本可能本身就是一个批次"),
    "batch.too_few": Words(
        "{samples} samples are less than {batches} batches of {size}",
        "{samples} 个样本不足 {batches} 个大小为 {size} 的批次",
    ),
    "cache.not_needed": Words(
        "no samples were seen to be made the same way again and again", "没有看到反复以同样方式制作的样本"
    ),
    "cache.set": Words("samples are kept", "样本已缓存"),
    "cache.not_cached": Words("{dataset} is not cached: {why}", "{dataset} 未被缓存：{why}"),
    "cache.ended": Words("the cache is no longer used: {why}", "不再使用缓存：{why}"),
    "cache.dataset_changed": Words("the dataset was changed while it was in use", "数据集在使用过程中被修改"),
    "cache.process_without": Words("process {pid} reads without the cache: {why}", "进程 {pid} 不经缓存读取：{why}"),
    "cache.less_room": Words(
        "the cache gets {got_gb:.2f} GB instead of {wanted_gb:.2f}: {folder} has no more free",
        "缓存得到 {got_gb:.2f} GB，而不是 {wanted_gb:.2f} GB：{folder} 没有更多空间",
    ),
    "cache.no_memory": Words(
        "{folder} has {free_mb:.1f} MB for it and {memory_mb:.0f} MB of memory are free; a folder on a local disk can "
        "be given instead (spill)",
        "{folder} 只有 {free_mb:.1f} MB 可用，空闲内存 {memory_mb:.0f} MB；可以改用本地磁盘上的文件夹（spill）",
    ),
    "cache.no_index": Words(
        "its samples have no index (it is no map-style dataset)", "样本没有索引（不是 map 式数据集）"
    ),
    "cache.no_length": Words("it has no length", "它没有长度"),
    "cache.empty": Words("it is empty", "它是空的"),
    "cache.look_late": Words(
        "its samples could not be looked at within {limit_s:g} s", "无法在 {limit_s:g} 秒内查看它的样本"
    ),
    "cache.look_died": Words("the process that looked at its samples died", "查看样本的进程已终止"),
    "cache.look_failed": Words("looking at its samples failed ({error})", "查看样本失败（{error}）"),
    "cache.nothing_to_gain": Words(
        "loading a sample takes {load_us:.0f} µs, getting it from the cache {get_us:.0f} µs: nothing to gain",
        "加载一个样本需 {load_us:.0f} µs，从缓存取需 {get_us:.0f} µs：没有收益",
    ),
    "cache.and": Words("{first}, and {second}", "{first}，而且{second}"),
    "cache.draws": Words(
        "reading sample {index} draws from {whose} random generator", "读取样本 {index} 时会从{whose}随机数生成器抽取"
    ),
    "cache.of_its_own": Words("its own", "它自己的"),
    "cache.sample_not_flat": Words("sample {index} cannot be kept: {why}", "样本 {index} 无法保留：{why}"),
    "cache.sample_differs": Words("sample {index} differs between two readings", "样本 {index} 两次读取的结果不同"),
    "cache.no_random_transform": Words(
        "none of the listed transforms is random: something else in the dataset is",
        "列出的变换都不随机：随机的是数据集中的其他部分",
    ),
    "cache.random_besides": Words("also without its random transforms, {why}", "即使去掉随机变换，{why}"),
    "cache.no_transforms": Words(
        "{kind} has no list of transforms (transform.transforms) to cut",
        "{kind} 没有可切分的变换列表（transform.transforms）",
    ),
    "cache.transform_calls": Words(
        "{kind} calls its transform {calls} times and changes what it returns",
        "{kind} 调用变换 {calls} 次，并修改了它返回的内容",
    ),
    "cache.parts_differ": Words(
        "sample {index} in two parts is not the sample as a whole", "分两部分得到的样本 {index} 与整个样本不同"
    ),
    "cache.too_many_arrays": Words("{kind} holds too many arrays", "{kind} 中的数组太多"),
    "cache.tensor_layout": Words(
        "a tensor with layout {layout} on {device} cannot be kept as flat bytes",
        "{device} 上布局为 {layout} 的张量无法按字节保留",
    ),
    "cache.tensor_grad": Words(
        "a tensor that requires grad belongs to a graph and cannot be kept", "需要梯度的张量属于计算图，无法保留"
    ),
    "cache.tensor_attributes": Words(
        "a tensor with attributes of its own cannot be kept as flat bytes", "带有自身属性的张量无法按字节保留"
    ),
    "cache.not_pickled": Words("{kind} cannot be pickled ({error})", "{kind} 无法 pickle（{error}）"),
    "cache.order_unknown": Words(
        "the order of {sampler} cannot be known in advance: the cache's policy is lru",
        "{sampler} 的顺序无法预知：缓存策略为 lru",
    ),
    "cache.epoch_unknown": Words(
        "the cache does not know the order of this epoch ({error})", "缓存不知道本轮的顺序（{error}）"
    ),
    "cache.other_version": Words("{path} is not a cache of this version", "{path} 不是这个版本的缓存"),
    "cache.no_locks": Words(
        "this system has no locks that end with their holder (F_OFD_SETLK)",
        "系统没有随持有者结束而释放的锁（F_OFD_SETLK）",
    ),
    "cache.other_samples": Words(
        "{path} holds {there} samples, not {wanted}", "{path} 有 {there} 个样本，而不是 {wanted} 个"
    ),
    "cache.too_many_processes": Words(
        "{path} is held by {most} processes or more", "{path} 被 {most} 个或更多进程占用"
    ),
    "cache.cannot_open": Words("{path} cannot be opened ({error})", "无法打开 {path}（{error}）"),
    "cache.cannot_make": Words("{path} cannot be made ({error})", "无法创建 {path}（{error}）"),
    "cache.small_budget": Words(
        "a budget of {budget} bytes does not even hold the table of {samples} samples",
        "{budget} 字节的预算连 {samples} 个样本的表都放不下",
    ),
    "cache.folder_full": Words("{folder} has no room for it ({error})", "{folder} 放不下它（{error}）"),
    "cache.not_ours": Words(
        "{path} belongs to user {user} with mode {mode}: not used", "{path} 属于用户 {user}，权限为 {mode}：不使用"
    ),
    "loader.renewed_for_iterator": Words(
        "started anew where the script still holds an iterator of the loader",
        "脚本仍持有该加载器的迭代器，因此另起新的 worker",
    ),
    "loader.other_number": Words("with another number of workers", "worker 数量不同时"),
    "loader.live_on": Words(
        "with workers that live on: theirs go on where new ones would begin",
        "worker 持续存活：其随机数会接着走，而新的会重新开始",
    ),
    "loader.by_place": Words(
        "as without workers, but by a sample's place in the epoch, whatever the number of workers",
        "与没有 worker 时不同：按样本在 epoch 中的位置抽取，与 worker 数量无关",
    ),
    "loader.other_batches": Words(
        "not the same batches: the dataset shares its samples out among its workers",
        "批次不同：数据集把样本分给各个 worker",
    ),
    "loader.stream_randomness_unknown": Words(
        "not known: a stream is not read to find out whether it draws random numbers",
        "未知：不会为了查明是否抽取随机数而读取数据流",
    ),
    "loader.randomness_unknown": Words(
        "not known: no sample could be read to find out whether it draws random numbers",
        "未知：没能读取样本以查明是否抽取随机数",
    ),
    "loader.no_draws": Words("samples draw no random numbers", "样本不抽取随机数"),
    "loader.sampler_draws": Words(
        "its sampler draws or counts with every batch, and workers have batches drawn ahead of time",
        "采样器在每个批次时抽取或计数，而 worker 会提前抽取批次",
    ),
    "loader.sample_changes": Words(
        "a sample read again is another one: its dataset changes as it is read, or has a generator of its own",
        "同一样本再读一次就不同：数据集在读取时会改变，或有自己的随机数生成器",
    ),
    "loader.collate_changes": Words(
        "the same samples collated again are others: its collate function changes as it is called",
        "同样的样本再整理一次就不同：整理函数在调用时会改变",
    ),
    "loader.dataset_changes": Words(
        "its dataset changes as it is read ({attribute}), and new workers begin anew",
        "数据集在读取时会改变（{attribute}），而新的 worker 会重新开始",
    ),
    "loader.stream_continues": Words(
        "its stream goes on where it was left ({attribute}), and new workers begin anew",
        "数据流会从上次停下处继续（{attribute}），而新的 worker 会重新开始",
    ),
    "loader.dataset_changes_in": Words(
        "its dataset changes as it is read ({attribute} in {method}), and new workers begin anew",
        "数据集在读取时会改变（{method} 中的 {attribute}），而新的 worker 会重新开始",
    ),
    "loader.left_alone": Words("left alone: {why}", "保持不变：{why}"),
    "loader.draws_others": Words("not the same random numbers {why}: {who}", "随机数不同（{why}）：{who}"),
    "loader.samples_draw": Words("samples draw them", "样本会抽取随机数"),
    "loader.collate_draws": Words("the collate function draws them", "整理函数会抽取随机数"),
    "loader.both_draw": Words("samples and the collate function draw them", "样本和整理函数都会抽取随机数"),
    "loader.some_draw": Words("some samples or batches draw them", "部分样本或批次会抽取随机数"),
    "loader.no_draws_collate_unknown": Words(
        "samples draw no random numbers; the collate function could not be looked at",
        "样本不抽取随机数；无法查看整理函数",
    ),
    "loader_prefetch.not_needed": Words(
        "batches are ready when they are asked for, or workers are what is missing",
        "请求时批次已就绪，或缺的是 worker",
    ),
    "loader_prefetch.set": Words("prefetch_factor {before} → {after}", "prefetch_factor {before} → {after}"),
    "loader_prefetch.sampler_draws": Words(
        "its sampler draws or counts with every batch that is made ahead",
        "采样器在每个提前制作的批次时抽取或计数",
    ),
    "persistent.short": Words("starting workers takes no time worth mentioning", "启动 worker 所占时间可以忽略"),
    "persistent.set": Words("persistent_workers", "persistent_workers"),
    "pin.short": Words("copies from pageable memory take no time worth mentioning", "从可分页内存拷贝所占时间可以忽略"),
    "pin.no_device": Words(
        "there is no CUDA device here, so nothing is copied to one", "这里没有 CUDA 设备，没有东西要拷贝过去"
    ),
    "pin.set": Words("pin_memory", "pin_memory"),
    "workers.shared_numbers": Words(
        "further workers share the numbers 0 to {last}, which the script expects: samples failed with others",
        "多出的 worker 共用脚本预期的编号 0 到 {last}：用其他编号样本会出错",
    ),
    "workers.keep_up": Words("the workers keep up with the training", "worker 跟得上训练"),
    "workers.set": Words("num_workers {before} → {after}", "num_workers {before} → {after}"),
    "workers.no_worker_info": Words(
        "in workers get_worker_info() is None: samples failed otherwise",
        "worker 中 get_worker_info() 为 None：否则样本会出错",
    ),
    "workers.gpu_dataset": Words(
        "its dataset holds tensors on the GPU, which workers cannot use",
        "它的数据集持有 GPU 上的张量，worker 无法使用",
    ),
    "workers.settings_need_workers": Words("it is made with settings that need workers", "它的设置需要 worker"),
    "workers.dataset_changes": Words(
        "{attribute} changes as samples are read: each worker has its own",
        "{attribute} 在读取样本时会改变：每个 worker 各有一份",
    ),
    "workers.stay_zero": Words(
        "num_workers stays 0: a batch takes {batch_ms:.2g} ms",
        "num_workers 保持 0：一个批次只需 {batch_ms:.2g} ms",
    ),
    "workers.shared_number": Words(
        "further workers share the number {last}, which the script expects: samples failed with others",
        "多出的 worker 共用脚本预期的编号 {last}：用其他编号样本会出错",
    ),
    "workers.not_sharded": Words(
        "an IterableDataset that is not sharded ({dataset} does not ask which worker it is in: get_worker_info) "
        "would give every sample once a worker",
        "未分片的 IterableDataset（{dataset} 没有用 get_worker_info 查询自己在哪个 worker 中）"
        "会让每个 worker 各给出一遍全部样本",
    ),
    "workers.main_not_guarded": Words(
        'workers started by {method!r} import the script again, and it has no `if __name__ == "__main__":` around '
        "what it does",
        '用 {method!r} 启动的 worker 会再次导入脚本，而脚本的主体没有放在 `if __name__ == "__main__":` 之内',
    ),
    "workers.unpicklable": Words(
        "its {argument} cannot be sent to workers started by {method!r}: {error}",
        "它的 {argument} 无法发送给用 {method!r} 启动的 worker：{error}",
    ),
    "memory_short.renewed": Words(
        "the machine's memory ran short: {renewed} of {workers} workers were renewed, without what they had kept",
        "机器内存不足：{workers} 个 worker 中有 {renewed} 个已重启，其保留的内容已释放",
    ),
    "memory_short.fewer": Words(
        "the machine's memory ran short: {workers} workers instead of {before}",
        "机器内存不足：worker 从 {before} 个减为 {workers} 个",
    ),
    "async_copies.not_needed": Words("no copy of a pinned batch holds up this training", "没有锁页批次的拷贝拖住训练"),
    "async_copies.once_pinned": Words(
        "once batches are pinned, the host need not wait for their copies",
        "批次锁页之后，主机不必等待它们的拷贝",
    ),
    "async_copies.written": Words(
        "the script writes into a batch after it has copied it", "脚本在拷贝批次之后又写入它"
    ),
    "device_prefetch.sampler_draws": Words(
        "its sampler draws from the script's random numbers as it goes",
        "采样器在进行中会从脚本的随机数抽取",
    ),
    "device_prefetch.not_pinned": Words(
        "batches are not pinned, so their copies would block (loader.pin)",
        "批次没有锁页，拷贝会阻塞（loader.pin）",
    ),
    "device_prefetch.used_on_host": Words(
        "the script uses {tensor} on the host before it moves ({function})",
        "脚本在移动 {tensor} 之前先在主机上使用它（{function}）",
    ),
    "device_prefetch.used_again": Words(
        "the script uses {tensor} again after it has moved it ({function})",
        "脚本移动 {tensor} 之后又使用原来的它（{function}）",
    ),
    "device_prefetch.not_straight": Words(
        "the batch does not go straight to one CUDA device", "批次没有直接送到一个 CUDA 设备"
    ),
    "transfer_prefetch.not_needed": Words(
        "no copies were seen that would be hidden behind kernels",
        "没有看到可以藏在 kernel 背后的拷贝",
    ),
    "transfer_prefetch.take_turns": Words("copies take turns with the kernels", "拷贝与 kernel 交替进行"),
    "transfer_prefetch.no_device": Words("there is no CUDA device here", "这里没有 CUDA 设备"),
    "defer.script_reads": Words(
        "the script reads the results itself (.item()), before any logger is called",
        "脚本在调用日志器之前就自己读取结果（.item()）",
    ),
    "defer.no_waits": Words("the host does not wait for results in every step", "主机并非每步都等待结果"),
    "defer.device_results": Words(
        "a logger is handed results that are still on the device", "交给日志器的结果还在设备上"
    ),
    "defer.no_cuda": Words(
        "this torch has no CUDA, so nothing waits for a device", "这个 torch 没有 CUDA，没有东西等待设备"
    ),
    "skip.not_needed": Words("no call of synchronize holds up this training", "没有 synchronize 调用拖住训练"),
    "skip.non_blocking_copy": Words(
        "the script copies to the host without blocking, and may read it after synchronize",
        "脚本以非阻塞方式拷贝到主机，可能在 synchronize 之后读取",
    ),
}

"""What detectors of copying to the device say of a run, in Chinese."""

from __future__ import annotations

SAID_TRANSFER = {
    # TR201, TR203, TR204: what is gained when copies no longer block.
    "copies hold the host up for {n} of {n} ms; moving the bytes takes {n} ms": (
        "拷贝在每步 {1} ms 中阻塞主机 {0} ms；传输这些字节要 {2} ms"
    ),
    "copies hold the host up for {n} of {n} ms; moving the bytes takes {n} ms{}": (
        "拷贝在每步 {1} ms 中阻塞主机 {0} ms；传输这些字节要 {2} ms{3}"
    ),
    ", pinning them {n} ms of a thread": "，锁页要占用一个线程 {0} ms",
    # TR201
    "copying {n} MiB a step from pageable memory blocks the host for {n} of {n} ms": (
        "每步从可分页内存拷贝 {0} MiB，{2} ms 中阻塞主机 {1} ms"
    ),
    "pin_memory=True in the DataLoader and .to(device, non_blocking=True)": (
        "DataLoader 设 pin_memory=True，拷贝用 .to(device, non_blocking=True)"
    ),
    # TR202
    "{n} copies of small tensors a step take {n} of {n} ms": "每步逐个拷贝小张量 {0} 次，占 {2} ms 中的 {1} ms",
    "pack them into one copy, or make them on the device: {}": "打包成一次拷贝，或直接在设备上生成：{0}",
    "{n} copies take {n} of {n} ms; one is left": "{0} 次拷贝占每步 {2} ms 中的 {1} ms；之后只剩一次",
    # TR203
    "pin_memory=True reaches none of the {n} copies a step, which block the host for {n} of {n} ms": (
        "pin_memory=True 对每步的 {0} 次拷贝都没有起作用，它们在 {2} ms 中阻塞主机 {1} ms"
    ),
    "a pin_memory() method in the batch's class (or collate to a dict), and .to(device, non_blocking=True)": (
        "给批次的类加上 pin_memory() 方法（或拼批成字典），拷贝用 .to(device, non_blocking=True)"
    ),
    # TR204
    "copies of pinned batches wait for the device, {n} of each {n} ms step": (
        "拷贝锁页批次时等待设备，每步 {1} ms 中占 {0} ms"
    ),
    ".to(device, non_blocking=True): {}": "使用 .to(device, non_blocking=True)：{0}",
    # TR205
    "{n} MiB a step are copied as {} though {} holds the values, {n} MiB more than needed": (
        "每步以 {1} 拷贝 {0} MiB，而 {2} 就放得下这些值，多拷了 {3} MiB"
    ),
    "make float32 in the dataset (.astype(np.float32)); numpy's own default is float64": (
        "在数据集里转成 float32（.astype(np.float32)）；numpy 默认是 float64"
    ),
    "send it as {} and widen it on the device: .to(device, non_blocking=True).long()": (
        "以 {0} 发送，到设备上再加宽：.to(device, non_blocking=True).long()"
    ),
    "send it as float16 and widen it on the device: .to(device, non_blocking=True).float()": (
        "以 float16 发送，到设备上再加宽：.to(device, non_blocking=True).float()"
    ),
    "send it as {} and convert, scale and normalise it on the device, after the copy": (
        "以 {0} 发送，拷贝之后再在设备上转换、缩放和归一化"
    ),
    "copies hold the host up for {n} of {n} ms, {} of it for bytes not needed": (
        "拷贝在每步 {1} ms 中阻塞主机 {0} ms，其中 {2} 花在不需要的字节上"
    ),
    "{n} MiB less in the device's queue, {n} ms of a bus that was not measured": (
        "设备队列里少传 {0} MiB，按未经实测的总线速度折合 {1} ms"
    ),
    "collating takes {n} ms a step, {} of it for these bytes": "拼批每步 {0} ms，其中 {1} 花在这些字节上",
    # TR206
    "{n} MiB a step come over the bus in turn with the kernels, about {n} of {n} ms": (
        "每步有 {0} MiB 经总线拷贝，与 kernel 轮流执行，约占 {2} ms 中的 {1} ms"
    ),
    "copy the next batch on a torch.cuda.Stream of its own while this one is computed": (
        "计算当前批次时，在单独的 torch.cuda.Stream 上拷贝下一个批次"
    ),
    "copying takes {n} ms of a bus that was not measured, computing {n} ms; the longer is left": (
        "按未经实测的总线速度，拷贝要 {0} ms，计算要 {1} ms；重叠之后只剩较长的一个"
    ),
}

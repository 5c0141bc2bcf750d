"""Problems of copies to the device: their titles, and what their detectors say."""

from __future__ import annotations

from flatout.words.table import ProblemWords, Words, titles

PROBLEMS = {
    "TR201": ProblemWords(
        Words("Batches are copied from pageable memory", "批次从可分页内存拷贝到设备"),
        "加载器的 `pin_memory=False`，或批次是手工拼的，再用 `.to(device)` 拷贝。"
        "驱动要先把数据分段搬进自己的锁页缓冲区，调用要等设备执行到这里才返回，其间什么都不发射。",
        "同时使用 `DataLoader(..., pin_memory=True)` 和 `batch.to(device, non_blocking=True)`；"
        "只用其中一个仍然会阻塞。",
    ),
    "TR202": ProblemWords(
        Words("Many small host-to-device copies", "大量小张量逐个拷贝"),
        "批次由许多小张量组成，或每一步都在主机上新建常量再拷到设备（循环里的 `torch.tensor(x, device=device)`）"
        "。再小的拷贝也要在设备队列里排队等待。",
        "常量只在设备上建一次（`register_buffer`）；同类数据打包成一个张量，到设备上再切开；"
        "掩码和网格直接在设备上生成（`torch.arange(n, device=device)`）。",
    ),
    "TR203": ProblemWords(
        Words("pin_memory has no effect on the copies", "加载器开了锁页，拷贝的却不是锁页内存"),
        "设了 `pin_memory=True`，送往设备的张量却仍在可分页内存里：加载器只锁列表、元组和字典里的张量，"
        "自定义类型的批次原样放过；或者批次在拷贝之前又在主机上被改成了新张量（`x.float()`、`x / 255`）。",
        "给批次类加上 `pin_memory()` 方法，或让 `collate_fn` 返回字典；类型转换和缩放放到拷贝之后、在设备上做，"
        "再用 `.to(device, non_blocking=True)`。",
    ),
    "TR204": ProblemWords(
        Words("Pinned batches are copied with a blocking call", "锁页批次用阻塞方式拷贝"),
        "加载器已经锁页，但拷贝写的是 `.to(device)`，没有 `non_blocking=True`："
        "调用要等设备做完排队的工作和这次拷贝，之后队列是空的，直到主机重新发射。",
        "写成 `x = x.to(device, non_blocking=True)`。这是安全的：使用 `x` 的 kernel 在同一队列里排在拷贝之后。",
    ),
    "TR205": ProblemWords(
        Words("Batches are copied in a wider dtype than needed", "送往设备的数据类型比需要的宽"),
        "取值只有 8 位的图像、掩码或标签以 float32、float64 或 int64 发送，字节数是四倍或八倍；拷贝、拼批、"
        "进程间传递和锁页都按同样的比例变慢。",
        "到设备之前保持 uint8：数据集里用 `torch.from_numpy(image)`，拷贝之后再 `.float().div_(255)` 并归一化；"
        "float64 在数据集里用 `.astype(np.float32)` 转换。",
    ),
    "TR206": ProblemWords(
        Words("Copies do not overlap with compute", "拷贝与 kernel 轮流执行"),
        "批次已锁页、拷贝也是非阻塞的，但与计算在同一个 stream 上：主机不等，设备在等，"
        "拷贝和它后面的 kernel 只能一前一后。",
        "在单独的 stream 上提前拷贝下一个批次（`torch.cuda.Stream()`、`wait_stream`、`record_stream`），"
        "让它与当前批次的计算重叠。",
    ),
}
TABLE = titles(PROBLEMS) | {}

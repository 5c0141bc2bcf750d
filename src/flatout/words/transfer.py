"""Problems of copies to the device: their titles, and what their detectors say."""

from __future__ import annotations

from .render import ProblemWords, Words, titles

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
TABLE = titles(PROBLEMS) | {
    # What is gained when copies no longer block, for several problems.
    "tr201.cause": Words(
        "copying {mib:.3g} MiB a step from pageable memory blocks the host for {blocked_ms:.3g} of {step_ms:.3g} ms",
        "每步从可分页内存拷贝 {mib:.3g} MiB，{step_ms:.3g} ms 中阻塞主机 {blocked_ms:.3g} ms",
    ),
    "tr201.change": Words(
        "pin_memory=True in the DataLoader and .to(device, non_blocking=True)",
        "DataLoader 设 pin_memory=True，拷贝用 .to(device, non_blocking=True)",
    ),
    "tr201.source_cause": Words(
        "{setting}: each copy to the device goes through a staging buffer of the driver and blocks the host",
        "{setting}：每次拷贝到设备都要经过驱动的中转缓冲区，并阻塞主机",
    ),
    "tr201.source_change": Words(
        "pin_memory=True, and .to(device, non_blocking=True) where the batch is copied",
        "设 pin_memory=True，拷贝批次的地方用 .to(device, non_blocking=True)",
    ),
    "tr202.cause": Words(
        "{copies:.3g} copies of small tensors a step take {copy_ms:.3g} of {step_ms:.3g} ms",
        "每步逐个拷贝小张量 {copies:.3g} 次，占 {step_ms:.3g} ms 中的 {copy_ms:.3g} ms",
    ),
    "tr202.change": Words(
        "pack them into one copy, or create them on the device: {lines}", "打包成一次拷贝，或直接在设备上生成：{lines}"
    ),
    "tr202.source_cause": Words("each of `{code}` is copied separately in {step}", "`{code}` 在{step}里逐个拷贝"),
    "tr202.source_change": Words(
        "let the collate function build one padded or concatenated tensor, copy it once, split it on the device",
        "让 collate 函数做成一个填充或拼接好的张量，只拷贝一次，到设备上再切开",
    ),
    "tr203.cause": Words(
        "pin_memory=True reaches none of the {copies:.3g} copies a step, which block the host for {blocked_ms:.3g} of "
        "{step_ms:.3g} ms",
        "pin_memory=True 对每步的 {copies:.3g} 次拷贝都没有起作用，"
        "它们在 {step_ms:.3g} ms 中阻塞主机 {blocked_ms:.3g} ms",
    ),
    "tr203.change": Words(
        "a pin_memory() method in the batch's class (or collate to a dict), and .to(device, non_blocking=True)",
        "给批次的类加上 pin_memory() 方法（或拼批成字典），拷贝用 .to(device, non_blocking=True)",
    ),
    "tr203.source_class": Words(
        "pin_memory=True skips batches of {batch_class}: it has no pin_memory method",
        "pin_memory=True 跳过 {batch_class} 类的批次：它没有 pin_memory 方法",
    ),
    "tr203.source_class_change": Words(
        "give {batch_class} a method pin_memory that pins its tensors and returns self",
        "给 {batch_class} 加上 pin_memory 方法：锁页其中的张量并返回 self",
    ),
    "tr203.source_new_tensor": Words(
        "`{code}` makes a new tensor from the pinned one, which is copied unpinned in {step}",
        "`{code}` 由锁页张量生成了新张量，在{step}里以非锁页方式拷贝",
    ),
    "tr203.source_new_tensor_change": Words(
        "copy first, .to(device, non_blocking=True), and compute on the device",
        "先拷贝：.to(device, non_blocking=True)，再在设备上计算",
    ),
    "tr204.title_not_pinned": Words("Batches are copied with a blocking call", "批次用阻塞方式拷贝"),
    "tr204.cause": Words(
        "copies of pinned batches wait for the device, {blocked_ms:.3g} of each {step_ms:.3g} ms step",
        "拷贝锁页批次时等待设备，每步 {step_ms:.3g} ms 中占 {blocked_ms:.3g} ms",
    ),
    "tr204.change": Words(".to(device, non_blocking=True): {lines}", "使用 .to(device, non_blocking=True)：{lines}"),
    "tr204.source_cause": Words("`{code}` waits for the device in {step}", "`{code}` 在{step}里等待设备"),
    "tr204.source_change": Words(
        "non_blocking=True, and pin_memory=True in the DataLoader",
        "设 non_blocking=True，并在 DataLoader 里设 pin_memory=True",
    ),
    "tr205.cause": Words(
        "{mib:.3g} MiB a step are copied as {dtype} though {narrow} holds the values, {more_mib:.3g} MiB more than "
        "needed",
        "每步以 {dtype} 拷贝 {mib:.3g} MiB，而 {narrow} 就放得下这些值，多拷了 {more_mib:.3g} MiB",
    ),
    "tr205.change_float64": Words(
        "convert to float32 in the dataset (.astype(np.float32)); NumPy's default is float64",
        "在数据集里转成 float32（.astype(np.float32)）；NumPy 默认是 float64",
    ),
    "tr205.change_integer": Words(
        "send it as {narrow} and widen it on the device: .to(device, non_blocking=True).long()",
        "以 {narrow} 发送，到设备上再加宽：.to(device, non_blocking=True).long()",
    ),
    "tr205.change_half": Words(
        "send it as float16 and widen it on the device: .to(device, non_blocking=True).float()",
        "以 float16 发送，到设备上再加宽：.to(device, non_blocking=True).float()",
    ),
    "tr205.change": Words(
        "send it as {narrow} and convert, scale and normalise it on the device, after the copy",
        "以 {narrow} 发送，拷贝之后再在设备上转换、缩放和归一化",
    ),
    "tr205.source_cause": Words(
        "`{code}` turns bytes into floats on the host: four times as much to pin and copy",
        "`{code}` 在主机上把字节转成浮点数：锁页和拷贝的数据量是四倍",
    ),
    "tr205.source_change": Words(
        "return uint8, and .to(device, non_blocking=True).float().div_(255) in the step",
        "返回 uint8，在训练步里再 .to(device, non_blocking=True).float().div_(255)",
    ),
    "tr206.cause": Words(
        "{mib:.3g} MiB a step are copied in turn with the kernels, about {copying_ms:.3g} of {step_ms:.3g} ms",
        "每步有 {mib:.3g} MiB 经总线拷贝，与 kernel 轮流执行，约占 {step_ms:.3g} ms 中的 {copying_ms:.3g} ms",
    ),
    "tr206.change": Words(
        "copy the next batch on a torch.cuda.Stream of its own while this one is computed",
        "计算当前批次时，在单独的 torch.cuda.Stream 上拷贝下一个批次",
    ),
}

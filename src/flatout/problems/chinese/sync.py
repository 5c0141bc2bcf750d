"""Problems of waiting for the device, in Chinese."""

from __future__ import annotations

from flatout.problems.chinese.words import Words

SYNC = {
    "SY301": Words(
        "主机在每一步都等待设备的结果",
        "训练步里对设备张量调用 `.item()`、`.cpu()`、`.tolist()`、`float(loss)` 或 `if tensor:`。"
        "调用要等设备做完所有排队的工作才返回，下一步开始时设备的队列是空的。",
        "结果留在设备上，少读几次：把 `total += loss.item()` 改成 `total += loss.detach()`，"
        '每一百步再 `total.item()` 一次；用于日志时 `.to("cpu", non_blocking=True)`，晚一步再读。',
    ),
    "SY302": Words(
        "某个操作在暗中等待设备",
        "`x[mask]`、`nonzero`、`masked_select`、`unique`、`repeat_interleave`，或用设备上的标量作大小或下标："
        "结果的形状只有设备知道，主机只能等。",
        "保持形状固定：把 `error[mask].mean()` 改成 `(error * mask).sum() / mask.sum()`，"
        "或用 `torch.where(mask, a, b)`；大小和下标取自主机（`len`、`shape`），不要取自张量。",
    ),
    "SY303": Words(
        "训练步里调用了 synchronize",
        "训练步里有 `torch.cuda.synchronize()`，或 stream、event 的 `synchronize()`，多半是以前计时留下的："
        "主机等设备做完，设备再等主机发射下一步。",
        "删掉它。要给一步的各部分计时，用成对的 `torch.cuda.Event(enable_timing=True)` 记录，以后再读。",
    ),
    "SY304": Words(
        "逐个等待每个参数",
        "对参数或梯度循环，每个都读一次值：检查 NaN、求梯度范数、统计权重。每轮发射一两个极小的 kernel 再等它，"
        "几百个参数就是每步几百次往返。",
        "合并成一个结果：范数用 `torch.nn.utils.get_total_norm(grads)` 或 `torch._foreach_norm(grads)`，"
        "只读一次；NaN 用 `torch.isfinite(total_norm)`，每一百步读一次。",
    ),
    "SY305": Words(
        "训练步在等别人",
        "训练循环里有会阻塞的调用：等查看器、套接字、子进程、人或时钟（`recv`、`accept`、`sleep`、`input`、"
        "网络请求、`psutil.cpu_percent(interval=...)`）；训练线程阻塞时什么都不发射。",
        "把它移出训练线程：查看器用非阻塞套接字轮询，每一百步应答一次，或者关掉；网络请求和子进程放到单独的线程；"
        "`sleep` 直接删掉。",
    ),
}

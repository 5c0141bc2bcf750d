"""What detectors of waiting for the device say of a run, in Chinese."""

from __future__ import annotations

SAID_SYNC = {
    # SY301
    "{n} calls a step wait {n} of {n} ms for the device's results": (
        "每步有 {0} 次调用等待设备的结果，占 {2} ms 中的 {1} ms"
    ),
    "keep the results on the device (.detach()) and read them every 100 steps: {}": (
        "结果留在设备上（.detach()），每 100 步读一次：{0}"
    ),
    "{n} of {n} ms are waits for results; then the slower of host and device binds": (
        "每步 {1} ms 中有 {0} ms 在等待结果；去掉之后，每步的时间由主机和设备中较慢的一方决定"
    ),
    # SY302
    "{n} operations a step wait for the device to learn a shape or a value, about {n} of {n} ms": (
        "每步有 {0} 个操作为得知形状或数值而等待设备，约占 {2} ms 中的 {1} ms"
    ),
    "torch.where or a weighted sum instead of a mask, sizes from the host: {}": (
        "用 torch.where 或加权求和代替掩码索引，大小取自主机：{0}"
    ),
    "{n} of {n} ms go by at lines that wait; then the slower of host and device binds": (
        "每步 {1} ms 中有 {0} ms 花在等待设备的代码行上；去掉之后，每步的时间由主机和设备中较慢的一方决定"
    ),
    # SY303
    "synchronize is called {n} times a step and waits {n} of {n} ms": (
        "每步调用 {0} 次 synchronize，等待占 {2} ms 中的 {1} ms"
    ),
    "delete the call, time with CUDA events: {}": "删掉这个调用，计时改用 CUDA event：{0}",
    "{n} of {n} ms are waits; then the slower of host and device binds": (
        "每步 {1} ms 中有 {0} ms 在等待；去掉之后，每步的时间由主机和设备中较慢的一方决定"
    ),
    # SY304
    "a loop over parameters waits for the device {n} times a step, {n} of {n} ms": (
        "一个遍历参数的循环每步等待设备 {0} 次，占 {2} ms 中的 {1} ms"
    ),
    "one torch._foreach_norm (or get_total_norm) over all gradients, read once in many steps": (
        "对所有梯度只做一次 torch._foreach_norm（或 get_total_norm），隔许多步读一次"
    ),
    "waits and launches of the loop take {n} of {n} ms; one check of all is left": (
        "循环的等待和发射占每步 {1} ms 中的 {0} ms；之后只剩一次总的检查"
    ),
    # SY305
    "the training thread is held up in {}, {n} of each {n} ms step": "训练线程阻塞在 {0} 里，每步 {2} ms 中占 {1} ms",
    "take the call off the training thread, or poll without waiting every hundredth step": (
        "把这个调用移出训练线程，或每一百步轮询一次、不等待"
    ),
    "{n} of {n} ms go by in a blocking call": "每步 {1} ms 中有 {0} ms 花在阻塞的调用里",
}

"""What detectors of the device's own work say of a run, in Chinese."""

from __future__ import annotations

SAID_COMPUTE = {
    # CO501
    "the tensor cores are active {} of the time while the GPU computes in float32 for {n} of each {n} ms step": (
        "每步 {2} ms 中 GPU 以 float32 计算 {1} ms，而张量核心只有 {0} 的时间活跃"
    ),
    "{} (estimated from memory activity) gets {n} times faster": "{0}（按显存活动估计）加快到 {1} 倍",
    "forward and backward take {n} ms on the device; the part of it that is matrix products": (
        "前向和反向在设备上占 {0} ms；其中的矩阵乘法"
    ),
    # CO502
    "the GPU binds, and its tensor cores work in TF32 for {} of the time": (
        "瓶颈在 GPU，其张量核心有 {0} 的时间以 TF32 工作"
    ),
    'with torch.autocast("cuda", dtype=torch.bfloat16): around forward and loss': (
        '用 with torch.autocast("cuda", dtype=torch.bfloat16): 包住前向和损失'
    ),
    "products on the tensor cores ({n} of {n} ms) get {n} times faster, the rest {n} times by half the bytes; "
    "the host's launches were not seen to bind": (
        "张量核心上的乘法（{1} ms 中的 {0} ms）加快到 {2} 倍，其余因字节减半加快到 {3} 倍；没有看到主机发射成为瓶颈"
    ),
    "of the {n} ms in the passes memory is active for {} and tensor cores for {}; bf16 makes that {n} and {n} times "
    "shorter; the host's launches were not seen to bind": (
        "前向和反向的 {0} ms 中，显存有 {1} 的时间活跃，张量核心有 {2}；"
        "bf16 使这两部分分别加快到 {3} 倍和 {4} 倍；没有看到主机发射成为瓶颈"
    ),
    # CO503
    "{} is in force, so the fastest kernels are not chosen": "{0} 生效中，因此没有选用最快的 kernel",
    "memory or tensor cores are active for {} of the time in which the device works; of the {n} ms that {} lose, "
    "half may go": ("设备工作的时间里，显存或张量核心有 {0} 的时间活跃；损失的 {1} ms 来自{2}，其中一半可能省去"),
    "its kernels": "各个 kernel",
    "convolutions": "卷积",
    # CO504
    "GPU {n} is slowed down for {} of the time ({}, {}, {}): {n} MHz instead of {n}": (
        "GPU {0} 有 {1} 的时间被降频（{2}、{3}、{4}）：{5} MHz，而不是 {6} MHz"
    ),
    "GPU {n} is slowed down for {} of the time ({}, {}): {n} MHz instead of {n}": (
        "GPU {0} 有 {1} 的时间被降频（{2}、{3}）：{4} MHz，而不是 {5} MHz"
    ),
    "GPU {n} is slowed down for {} of the time ({}): {n} MHz instead of {n}": (
        "GPU {0} 有 {1} 的时间被降频（{2}）：{3} MHz，而不是 {4} MHz"
    ),
    "software thermal": "软件过热保护",
    "hardware thermal": "硬件过热保护",
    "hardware slowdown": "硬件降频",
    "see to the cooling": "检查散热",
    "see to the power supply": "检查供电",
    "kernels at {n} instead of {n} MHz": "kernel 以 {0} MHz 运行，而不是 {1} MHz",
    # CO505
    "a kernel runs {n}% of the time, but only {} of the GPU is active": (
        "{0}% 的时间有 kernel 在跑，但 GPU 只有 {1} 活跃"
    ),
    "{n} samples a step instead of {n}, and the learning rate to match": (
        "每步 {0} 个样本，而不是 {1} 个，学习率相应调整"
    ),
    "{n} times the batch in a step that is {n} times as long": "批次增大到 {0} 倍，一步的时间只增加到 {1} 倍",
    # CO506
    "{} of the convolutions that tensor cores can take run in half precision with channels first, on a device that "
    "computes for {n} of each {n} ms step": (
        "张量核心能算的卷积中，{0} 以半精度、通道在前的布局运行，而设备每步 {2} ms 中计算 {1} ms"
    ),
    "{} of the convolutions that tensor cores can take run in half precision with channels first, on a device that "
    "computes for {n} of each {n} ms step{}": (
        "张量核心能算的卷积中，{0} 以半精度、通道在前的布局运行，而设备每步 {2} ms 中计算 {1} ms{3}"
    ),
    "; the card does not count what its kernels lose by that": "；这块卡不统计 kernel 因此损失多少",
    "model.to(memory_format=torch.channels_last), and the images likewise": (
        "model.to(memory_format=torch.channels_last)，图像也一样"
    ),
    "memory or tensor cores are active for {} of the time in which the device works; well-laid-out kernels would need "
    "{} of the {n} ms": ("设备工作的时间里，显存或张量核心有 {0} 的时间活跃；布局合适的 kernel 只需 {2} ms 的 {1}"),
    # CO507
    "{} of the {n} places in a row are padding ({}), computed with the rest in {n} of each {n} ms step": (
        "每行 {1} 个位置中 {0} 是填充（{2}），在每步 {4} ms 中的 {3} ms 里一并计算"
    ),
    "the value {}": "值为 {0}",
    "pad each batch to its own longest sequence only, and {}": "每批只填充到本批最长，并且{0}",
    "draw batches from sequences of about the same length, or pack several into a row": (
        "把长度相近的序列放进同一批，或把几条序列拼进一行"
    ),
    "passes of {n} ms shrink with the places computed: to {} if sorted by length in chunks of 50 batches (from {n} "
    "rows looked at), {} without any padding": (
        "前向和反向的 {0} ms 随所算的位置数缩短：以 50 批为一块按长度排序则降到 {1}（据所看的 {2} 行），"
        "完全没有填充则降到 {3}"
    ),
    # CO508
    "{} ({}) takes {n} of each {n} ms step; the next, {}, takes {n}": (
        "{0}（{1}）占每步 {3} ms 中的 {2} ms；其次是 {4}，占 {5} ms"
    ),
    "look at {} first: twice as fast it makes the step ×{n} at most": "先看 {0}：它快一倍，整步最多提速到 ×{1}",
    # CO512
    "{n} checkpointed calls a step are run again in backward, while {} of the {} on the device are free": (
        "每步有 {0} 次检查点调用在反向时重新运行，而设备的 {2} 显存中有 {1} 空着"
    ),
    "switch activation checkpointing off, for as many blocks as the memory allows": (
        "关掉激活检查点，显存够多少块就关多少块"
    ),
    "{n} calls take {n} ms in forward, and about as much once more in backward": (
        "{0} 次调用在前向中占 {1} ms，在反向中再占差不多同样的时间"
    ),
    # Names of what was seen: CO507, CO504.
    "masked out": "被掩码遮住",
    "power brake": "供电制动",
    "sync boost": "同步加速",
}

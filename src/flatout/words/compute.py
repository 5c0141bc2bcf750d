"""Problems of the GPU's own work: precision, layout, padding, clocks (CO5xx)."""

from __future__ import annotations

from .table import ProblemWords, Words, titles

PROBLEMS = {
    "CO501": ProblemWords(
        Words("float32 matmuls do not use TF32", "float32 矩阵乘法没有使用 TF32"),
        'torch 对 float32 矩阵乘法的默认精度是 "highest"，用的是通用核心；'
        "Ampere 及之后的卡可以让张量核心以 TF32 计算：数值范围相同，尾数 10 位。",
        '在脚本开头调用 `torch.set_float32_matmul_precision("high")`。',
    ),
    "CO502": ProblemWords(
        Words("No mixed precision: TF32 instead of bf16", "没有混合精度：用的是 TF32，而不是 bf16"),
        "模型以 float32 训练，矩阵乘法和卷积已经以 TF32 用上张量核心；改用 bf16，同样时间能做两倍的运算，"
        "激活值的访存量减半。",
        '用 `with torch.autocast("cuda", dtype=torch.bfloat16):` 包住前向和损失；bf16 不需要梯度缩放。',
    ),
    "CO503": ProblemWords(
        Words("Deterministic algorithms are enforced", "强制使用确定性算法"),
        "`torch.backends.cudnn.deterministic` 或 `torch.use_deterministic_algorithms` 开着，torch 不能为卷积、"
        "scatter 等选择最快的算法，cudnn 也不会去搜索。",
        "除非每次运行都必须逐位一致，否则设 `torch.backends.cudnn.deterministic = False`，"
        "输入形状固定时再设 `torch.backends.cudnn.benchmark = True`。",
    ),
    "CO504": ProblemWords(
        Words("GPU clock throttling", "GPU 降频"),
        "显卡因过热、供电到达极限或触及功耗上限而降频。利用率看起来很完美，但每个 kernel 都变慢了。",
        "过热：改善风道、除尘、检查风扇和机箱位置；供电告警：检查电源和线缆；功耗上限："
        "查看 `nvidia-smi -q -d POWER`，若被人调低就调回来。",
    ),
    "CO505": ProblemWords(
        Words("Kernels are too small to fill the GPU", "kernel 太小，占不满 GPU"),
        "kernel 一个接一个没有空隙，但每个只占用少数几个 SM：模型小或批次小。利用率只表示“有某个 kernel 在跑”，"
        "所以看起来很高。",
        "只要样本/秒还在上升就增大批次（注意学习率），或在一块卡上同时跑几个任务（MPS、MIG），或换小一些的卡。",
    ),
    "CO506": ProblemWords(
        Words("Half-precision convolutions without channels_last", "半精度卷积没有使用 channels_last"),
        "卷积模型以 bf16 或 fp16 训练，图像和权重却是 torch 默认的 NCHW 布局；张量核心要的是 NHWC，"
        "cudnn 只好在卷积前后转换布局，或选用较慢的 kernel。",
        "模型移到设备之后 `model = model.to(memory_format=torch.channels_last)`，"
        "输入用 `images.to(device, memory_format=torch.channels_last, non_blocking=True)`；中途不要用 `view`、"
        "`.contiguous()` 强行改回。",
    ),
    "CO507": ProblemWords(
        Words("Much of the compute is padding", "模型计算的很大一部分是填充"),
        "长短不一的序列被填充到同一长度（最长者或固定上限），填充的部分模型也照样计算。",
        "填充到本批最长，而不是固定上限；把长度相近的序列放进同一批（分块排序的 batch sampler，"
        "Hugging Face Trainer 的 `group_by_length=True`）；或把几条序列拼进一行。",
    ),
    "CO508": ProblemWords(
        Words("One stage of the model takes most of the step", "模型的某一部分占了大半步"),
        "在模型的各部分中，单独一个（前向加反向）就占了一步的一半以上：全分辨率的解码器、序列过长的注意力、"
        "词表巨大的输出头。在它之外做什么都收效甚微。",
        "先看这一部分：分辨率、精度、所用的 kernel，以及是否每一步都需要它的全部。",
    ),
    "CO509": ProblemWords(
        Words("The model is not compiled", "模型没有编译"),
        "torch 把前向和反向的每个操作作为单独的 kernel 发射；"
        "`torch.compile` 可以把大矩阵乘法之间的大多数操作融合起来。",
        "模型移到设备之后调用 `model.compile()`；它原地生效，检查点里的名字不变，"
        "而 `model = torch.compile(model)` 会加上 `_orig_mod.` 前缀。",
    ),
    "CO511": ProblemWords(
        Words("Deprecated autocast API", "autocast 用的是已弃用的接口"),
        "`torch.cuda.amp.autocast`、`torch.cuda.amp.GradScaler` 等自 torch 2.4 起弃用，"
        "`torch.amp` 适用于所有设备；带 O1、O2 级别的 NVIDIA apex `amp` 已停止维护。",
        '改用 `torch.amp.autocast("cuda", …)`、`torch.amp.GradScaler("cuda", …)`；从 apex 迁移：'
        '去掉 `amp.initialize`，前向和损失放在 `torch.autocast("cuda", dtype=torch.bfloat16)` 里。',
    ),
    "CO512": ProblemWords(
        Words("Activation checkpointing while GPU memory is free", "显存空着，却启用了激活检查点"),
        "激活检查点：模型的一些部分只保存输入，在反向时再运行一遍。GPU 把前向的一部分算了两次，主机也发射了两次，"
        "省下来的显存却闲置着。表现：每步都调用 `torch.utils.checkpoint`，而设备的显存不到一半。",
        "把它关掉（`use_checkpoint=False`、`gradient_checkpointing=False` 或模型自己的叫法），或只对一部分块关掉。"
        "从外部用 `memory.keep`：显存够多少就保留多少，损失和权重逐位不变。",
    ),
}
TABLE = titles(PROBLEMS) | {
    # CO501
    "co501.cause": Words(
        "the tensor cores are active {tensor_active:.1%} of the time while the GPU computes in float32 for"
        " {passes_ms:.3g} of each {step_ms:.3g} ms step",
        "每步 {step_ms:.3g} ms 中 GPU 以 float32 计算 {passes_ms:.3g} ms，而张量核心只有 {tensor_active:.1%}"
        " 的时间活跃",
    ),
    "co501.gain": Words(
        "forward and backward take {passes_ms:.3g} ms on the GPU; the part of it that is matrix products (estimated"
        " from memory activity) gets {factor:g} times faster",
        "前向和反向在设备上占 {passes_ms:.3g} ms；其中的矩阵乘法（按显存活动估计）加快到 {factor:g} 倍",
    ),
    "co501.source_cause": Words(
        "nothing sets the precision of float32 matrix products, so they do not use the tensor cores",
        "没有任何地方设置 float32 矩阵乘法的精度，因此它们用不上张量核心",
    ),
    "co501.source_change": Words(
        'torch.set_float32_matmul_precision("high") at the start of the script',
        '在脚本开头调用 torch.set_float32_matmul_precision("high")',
    ),
    # CO502
    "co502.cause": Words(
        "the GPU is the bottleneck, and its tensor cores work in TF32 for {tensor_active:.0%} of the time",
        "瓶颈在 GPU，其张量核心有 {tensor_active:.0%} 的时间以 TF32 工作",
    ),
    "co502.change": Words(
        'with torch.autocast("cuda", dtype=torch.bfloat16): around forward and loss',
        '用 with torch.autocast("cuda", dtype=torch.bfloat16): 包住前向和损失',
    ),
    "co502.gain": Words(
        "products on the tensor cores ({products_ms:.3g} of {step_ms:.3g} ms) get {factor:g} times faster, the rest"
        " {rest_factor:g} times by half the bytes; launches were not seen to be the bottleneck",
        "张量核心上的乘法（{step_ms:.3g} ms 中的 {products_ms:.3g} ms）加快到 {factor:g} 倍，"
        "其余因字节减半加快到 {rest_factor:g} 倍；没有看到主机发射成为瓶颈",
    ),
    "co502.gain_counters": Words(
        "of the {passes_ms:.3g} ms of forward and backward, memory is active for {memory_active:.0%} and the tensor"
        " cores for {tensor_active:.0%}; bf16 makes that {memory_factor:g} and {tensor_factor:g} times shorter;"
        " launches were not seen to be the bottleneck",
        "前向和反向的 {passes_ms:.3g} ms 中，显存有 {memory_active:.0%} 的时间活跃，张量核心有 {tensor_active:.0%}；"
        "bf16 使这两部分分别加快到 {memory_factor:g} 倍和 {tensor_factor:g} 倍；没有看到主机发射成为瓶颈",
    ),
    "co502.source_title": Words("No mixed precision", "没有使用混合精度"),
    "co502.source_cause": Words(
        "this training computes everything on the GPU in float32: no autocast, fp16 or bf16 in any of its files",
        "这个训练在 GPU 上全部以 float32 计算：所有文件里都没有 autocast、fp16 或 bf16",
    ),
    # CO503
    "co503.cause": Words(
        "{switch} is set, so the fastest kernels are not chosen", "{switch} 生效中，因此没有选用最快的 kernel"
    ),
    "co503.gain_all": Words(
        "memory or tensor cores are active for {active:.0%} of the time in which the GPU works; of the {lost_ms:.3g} ms"
        " that its kernels lose, half may go",
        "设备工作的时间里，显存或张量核心有 {active:.0%} 的时间活跃；各个 kernel 损失的 {lost_ms:.3g} ms 中，"
        "一半可能省去",
    ),
    "co503.gain_convolutions": Words(
        "memory or tensor cores are active for {active:.0%} of the time in which the GPU works; of the {lost_ms:.3g} ms"
        " that convolutions lose, half may go",
        "设备工作的时间里，显存或张量核心有 {active:.0%} 的时间活跃；卷积损失的 {lost_ms:.3g} ms 中，一半可能省去",
    ),
    "co503.deterministic": Words(
        "cudnn may only use deterministic kernels, not the fastest ones", "cudnn 只能用确定性的 kernel，而不是最快的"
    ),
    "co503.deterministic_searched": Words(
        "cudnn may only use deterministic kernels, not the fastest ones, though it searches among these",
        "cudnn 只能用确定性的 kernel，而不是最快的，虽然它会在其中搜索",
    ),
    "co503.algorithms": Words(
        "torch may only use deterministic algorithms, some of them far slower", "torch 只能用确定性算法，其中一些慢得多"
    ),
    "co503.enabled": Words(
        "cudnn is off: convolutions run in torch's own, slower kernels",
        "cudnn 被关掉：卷积改用 torch 自己的、较慢的 kernel",
    ),
    "co503.benchmark": Words("cudnn may not search for the fastest convolution", "cudnn 不能搜索最快的卷积算法"),
    "co503.change_deterministic": Words(
        "deterministic = False and benchmark = True, unless every run has to give the same bits",
        "设 deterministic = False、benchmark = True，除非每次运行都必须逐位一致",
    ),
    "co503.change_algorithms": Words(
        "torch.use_deterministic_algorithms(False), unless every run has to give the same bits",
        "用 torch.use_deterministic_algorithms(False)，除非每次运行都必须逐位一致",
    ),
    "co503.change_enabled": Words("leave cudnn on", "让 cudnn 保持开启"),
    "co503.change_benchmark": Words(
        "torch.backends.cudnn.benchmark = True, if inputs keep their shape",
        "输入形状固定时，设 torch.backends.cudnn.benchmark = True",
    ),
    "co503.fix": Words("let torch choose the fastest kernels", "让 torch 选择最快的 kernel"),
    # CO504
    "co504.cause": Words(
        "GPU {gpu} is throttled for {share:.0%} of the time ({reasons}): {clock_mhz:.0f} MHz instead of"
        " {best_clock_mhz:.0f}",
        "GPU {gpu} 有 {share:.0%} 的时间被降频（{reasons}）：{clock_mhz:.0f} MHz，而不是 {best_clock_mhz:.0f} MHz",
    ),
    "co504.software_thermal": Words("software thermal", "软件过热保护"),
    "co504.hardware_thermal": Words("hardware thermal", "硬件过热保护"),
    "co504.hardware_slowdown": Words("hardware slowdown", "硬件降频"),
    "co504.power_brake": Words("power brake", "供电制动"),
    "co504.sync_boost": Words("sync boost", "同步加速"),
    "co504.change_cooling": Words("check the cooling", "检查散热"),
    "co504.change_power": Words("check the power supply", "检查供电"),
    "co504.gain": Words(
        "kernels at {best_clock_mhz:.0f} instead of {clock_mhz:.0f} MHz",
        "kernel 以 {best_clock_mhz:.0f} MHz 运行，而不是 {clock_mhz:.0f} MHz",
    ),
    # CO505
    "co505.cause": Words(
        "a kernel runs {util:.0f}% of the time, but only {sm_active:.0%} of the GPU is active",
        "{util:.0f}% 的时间有 kernel 在跑，但 GPU 只有 {sm_active:.0%} 活跃",
    ),
    "co505.change": Words(
        "{more:.0f} samples a step instead of {samples:.0f}, and the learning rate to match",
        "每步 {more:.0f} 个样本，而不是 {samples:.0f} 个，学习率相应调整",
    ),
    "co505.gain": Words(
        "{times} times the batch in a step that is {longer:.2f} times as long",
        "批次增大到 {times} 倍，一步的时间只增加到 {longer:.2f} 倍",
    ),
    # CO506
    "co506.cause": Words(
        "{share:.0%} of the convolutions that tensor cores can take run in half precision with channels first, on a GPU"
        " that computes for {passes_ms:.3g} of each {step_ms:.3g} ms step",
        "张量核心能算的卷积中，{share:.0%} 以半精度、通道在前的布局运行，而设备每步 {step_ms:.3g} ms 中计算"
        " {passes_ms:.3g} ms",
    ),
    "co506.cause_uncounted": Words(
        "{share:.0%} of the convolutions that tensor cores can take run in half precision with channels first, on a"
        " GPU that computes for {passes_ms:.3g} of each {step_ms:.3g} ms step; the card does not count what its"
        " kernels lose by that",
        "张量核心能算的卷积中，{share:.0%} 以半精度、通道在前的布局运行，而设备每步 {step_ms:.3g} ms 中计算"
        " {passes_ms:.3g} ms；这块卡不统计 kernel 因此损失多少",
    ),
    "co506.change": Words(
        "model.to(memory_format=torch.channels_last), and the images likewise",
        "model.to(memory_format=torch.channels_last)，图像也一样",
    ),
    "co506.gain": Words(
        "memory or tensor cores are active for {active:.0%} of the time in which the GPU works; kernels with a suitable"
        " layout would need {likely:.0%} of the {passes_ms:.3g} ms",
        "设备工作的时间里，显存或张量核心有 {active:.0%} 的时间活跃；布局合适的 kernel 只需 {passes_ms:.3g} ms 的"
        " {likely:.0%}",
    ),
    "co506.source_cause": Words(
        "convolutions in half precision, with channels first: nothing in this training sets channels_last",
        "半精度卷积用的是通道在前的布局：这个训练里没有任何地方设置 channels_last",
    ),
    # CO507
    "co507.cause": Words(
        "{share:.0%} of the {length:.0f} positions in a row are padding ({kind}), computed with the rest in"
        " {passes_ms:.3g} of each {step_ms:.3g} ms step",
        "每行 {length:.0f} 个位置中 {share:.0%} 是填充（{kind}），在每步 {step_ms:.3g} ms 中的 {passes_ms:.3g} ms"
        " 里一并计算",
    ),
    "padding.masked": Words("masked out", "被掩码遮住"),
    "padding.value": Words("the value {value}", "值为 {value}"),
    "co507.change": Words(
        "draw batches from sequences of about the same length, or pack several into a row",
        "把长度相近的序列放进同一批，或把几条序列拼进一行",
    ),
    "co507.change_trim": Words(
        "pad each batch to its own longest sequence only, and draw batches from sequences of about the same length, or"
        " pack several into a row",
        "每批只填充到本批最长，并且把长度相近的序列放进同一批，或把几条序列拼进一行",
    ),
    "co507.gain": Words(
        "{passes_ms:.3g} ms of forward and backward shrink with the positions computed: to {sorted:.0%} if sorted by"
        " length in chunks of 50 batches (from {rows} rows looked at), {unpadded:.0%} without any padding",
        "前向和反向的 {passes_ms:.3g} ms 随所算的位置数缩短：以 50 批为一块按长度排序则降到 {sorted:.0%}"
        "（据所看的 {rows} 行），完全没有填充则降到 {unpadded:.0%}",
    ),
    "co507.source_cause": Words(
        "every sequence is padded to one fixed length, and the model computes the padding as well",
        "每条序列都填充到同一固定长度，填充的部分模型也照样计算",
    ),
    "co507.source_cause_length": Words(
        "every sequence is padded to one fixed length ({length}), and the model computes the padding as well",
        "每条序列都填充到同一固定长度（{length}），填充的部分模型也照样计算",
    ),
    "co507.source_change_tokenizer": Words(
        "pad in the collate function, to the longest of each batch (padding=True, DataCollatorWithPadding)",
        "在 collate 函数里填充到本批最长（padding=True、DataCollatorWithPadding）",
    ),
    "co507.source_change": Words(
        "pad in the collate function, to the longest of each batch (pad_sequence)",
        "在 collate 函数里填充到本批最长（pad_sequence）",
    ),
    # CO508
    "co508.cause": Words(
        "{stage} ({module}) takes {ms:.3g} of each {step_ms:.3g} ms step; the next, {next_stage}, takes {next_ms:.3g}",
        "{stage}（{module}）占每步 {step_ms:.3g} ms 中的 {ms:.3g} ms；其次是 {next_stage}，占 {next_ms:.3g} ms",
    ),
    "co508.change": Words(
        "look at {stage} first: twice as fast, it makes the step ×{gain:.2f} at most",
        "先看 {stage}：它快一倍，整步最多提速到 ×{gain:.2f}",
    ),
    # CO509
    "co509.source_cause": Words(
        "nothing in this training is compiled: each operation is a kernel that the host launches",
        "这个训练里没有任何编译：每个操作都是主机单独发射的 kernel",
    ),
    "co509.source_change": Words(
        "model.compile() once it is on the GPU, if the shapes of its inputs seldom change",
        "如果输入形状很少变化，模型移到设备之后调用 model.compile()",
    ),
    # CO511
    "co511.source_cause_import": Words(
        "these names of torch.cuda.amp are deprecated since torch 2.4", "torch.cuda.amp 的这些名字自 torch 2.4 起弃用"
    ),
    "co511.source_cause": Words("{name} is deprecated since torch 2.4", "{name} 自 torch 2.4 起弃用"),
    "co511.source_change_import": Words(
        'import them from torch.amp, and name the device: autocast("cuda", …)',
        '改从 torch.amp 导入，并写明设备：autocast("cuda", …)',
    ),
    "co511.source_cause_apex": Words(
        "apex's amp is no longer maintained; its levels are not those of native autocast",
        "apex 的 amp 已停止维护；它的级别与原生 autocast 不同",
    ),
    "co511.source_change_apex": Words(
        'with torch.autocast("cuda", dtype=torch.bfloat16): around forward and loss, without apex',
        '去掉 apex，用 with torch.autocast("cuda", dtype=torch.bfloat16): 包住前向和损失',
    ),
    "co511.fix": Words("use torch.amp", "改用 torch.amp"),
    # CO512
    "co512.cause": Words(
        "{calls:.3g} checkpointed calls a step are run again in backward, while {free} of the {total} on the GPU are"
        " free",
        "每步有 {calls:.3g} 次检查点调用在反向时重新运行，而设备的 {total} 显存中有 {free} 空着",
    ),
    "co512.change": Words(
        "switch activation checkpointing off, for as many blocks as the memory allows",
        "关掉激活检查点，显存够多少块就关多少块",
    ),
    "co512.gain": Words(
        "{calls:.3g} calls take {forward_ms:.3g} ms in forward, and about as much once more in backward",
        "{calls:.3g} 次调用在前向中占 {forward_ms:.3g} ms，在反向中再占差不多同样的时间",
    ),
}

"""Problems of the device's own work, in Chinese."""

from __future__ import annotations

from flatout.problems.chinese.words import Words

COMPUTE = {
    "CO501": Words(
        "矩阵乘法以完整的 float32 运行",
        'torch 对 float32 矩阵乘法的默认精度是 "highest"，用的是通用核心；'
        "Ampere 及之后的卡可以让张量核心以 TF32 计算：数值范围相同，尾数 10 位。",
        '在脚本开头调用 `torch.set_float32_matmul_precision("high")`。',
    ),
    "CO502": Words(
        "张量核心用的是 TF32，本可以用 bf16",
        "模型以 float32 训练，矩阵乘法和卷积已经以 TF32 用上张量核心；改用 bf16，同样时间能做两倍的运算，"
        "激活值的访存量减半。",
        '用 `with torch.autocast("cuda", dtype=torch.bfloat16):` 包住前向和损失；bf16 不需要梯度缩放。',
    ),
    "CO503": Words(
        "只允许确定性算法",
        "`torch.backends.cudnn.deterministic` 或 `torch.use_deterministic_algorithms` 开着，torch 不能为卷积、"
        "scatter 等选择最快的算法，cudnn 也不会去搜索。",
        "除非每次运行都必须逐位一致，否则设 `torch.backends.cudnn.deterministic = False`，"
        "输入形状固定时再设 `torch.backends.cudnn.benchmark = True`。",
    ),
    "CO504": Words(
        "GPU 的时钟频率被压低",
        "显卡因过热、供电到达极限或触及功耗上限而降频。利用率看起来很完美，但每个 kernel 都变慢了。",
        "过热：改善风道、除尘、检查风扇和机箱位置；供电告警：检查电源和线缆；功耗上限："
        "查看 `nvidia-smi -q -d POWER`，若被人调低就调回来。",
    ),
    "CO505": Words(
        "工作量对这块 GPU 来说太小",
        "kernel 一个接一个没有空隙，但每个只占用少数几个 SM：模型小或批次小。利用率只表示“有某个 kernel 在跑”，"
        "所以看起来很高。",
        "只要样本/秒还在上升就增大批次（注意学习率），或在一块卡上同时跑几个任务（MPS、MIG），或换小一些的卡。",
    ),
    "CO506": Words(
        "半精度卷积用的是通道在前的布局",
        "卷积模型以 bf16 或 fp16 训练，图像和权重却是 torch 默认的 NCHW 布局；张量核心要的是 NHWC，"
        "cudnn 只好在卷积前后转换布局，或选用较慢的 kernel。",
        "模型移到设备之后 `model = model.to(memory_format=torch.channels_last)`，"
        "输入用 `images.to(device, memory_format=torch.channels_last, non_blocking=True)`；中途不要用 `view`、"
        "`.contiguous()` 强行改回。",
    ),
    "CO507": Words(
        "模型计算的很大一部分是填充",
        "长短不一的序列被填充到同一长度（最长者或固定上限），填充的部分模型也照样计算。",
        "填充到本批最长，而不是固定上限；把长度相近的序列放进同一批（分块排序的 batch sampler，"
        "Hugging Face Trainer 的 `group_by_length=True`）；或把几条序列拼进一行。",
    ),
    "CO508": Words(
        "模型的某一部分占了大半步",
        "在模型的各部分中，单独一个（前向加反向）就占了一步的一半以上：全分辨率的解码器、序列过长的注意力、"
        "词表巨大的输出头。在它之外做什么都收效甚微。",
        "先看这一部分：分辨率、精度、所用的 kernel，以及是否每一步都需要它的全部。",
    ),
    "CO509": Words(
        "模型逐个操作地运行",
        "torch 把前向和反向的每个操作作为单独的 kernel 发射；"
        "`torch.compile` 可以把大矩阵乘法之间的大多数操作融合起来。",
        "模型移到设备之后调用 `model.compile()`；它原地生效，检查点里的名字不变，"
        "而 `model = torch.compile(model)` 会加上 `_orig_mod.` 前缀。",
    ),
    "CO511": Words(
        "autocast 用的是 torch 已弃用的名字",
        "`torch.cuda.amp.autocast`、`torch.cuda.amp.GradScaler` 等自 torch 2.4 起弃用，"
        "`torch.amp` 适用于所有设备；带 O1、O2 级别的 NVIDIA apex `amp` 已停止维护。",
        '改用 `torch.amp.autocast("cuda", …)`、`torch.amp.GradScaler("cuda", …)`；从 apex 迁移：'
        '去掉 `amp.initialize`，前向和损失放在 `torch.autocast("cuda", dtype=torch.bfloat16)` 里。',
    ),
    "CO512": Words(
        "显存空着，激活值却重新计算",
        "激活检查点：模型的一些部分只保存输入，在反向时再运行一遍。GPU 把前向的一部分算了两次，主机也发射了两次，"
        "省下来的显存却闲置着。表现：每步都调用 `torch.utils.checkpoint`，而设备的显存不到一半。",
        "把它关掉（`use_checkpoint=False`、`gradient_checkpointing=False` 或模型自己的叫法），或只对一部分块关掉。"
        "从外部用 `memory.keep`：显存够多少就保留多少，损失和权重逐位不变。",
    ),
}

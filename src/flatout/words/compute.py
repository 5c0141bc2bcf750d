"""Problems of the GPU's own work: precision, layout, padding, clocks (CO5xx)."""

from __future__ import annotations

from .render import ProblemWords, Words, titles

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
    "CO524": ProblemWords(
        Words("Fewer threads than processors", "线程数少于处理器数"),
        "在 CPU 上训练，但 `torch.set_num_threads(n)`、`OMP_NUM_THREADS` 或把它设为 1 的启动器让 torch 只用一个或少数"
        "几个线程，其余处理器空闲。",
        "`torch.set_num_threads(n)` 设为处理器数，或去掉这个调用；torchrun 会把 `OMP_NUM_THREADS` 设为 1，"
        "用 `OMP_NUM_THREADS=n` 覆盖；多个 rank 要分用处理器。",
    ),
    "CO509": ProblemWords(
        Words("The model is not compiled", "模型没有编译"),
        "torch 把前向和反向的每个操作作为单独的 kernel 发射；"
        "`torch.compile` 可以把大矩阵乘法之间的大多数操作融合起来。",
        "模型移到设备之后调用 `model.compile()`；它原地生效，检查点里的名字不变，"
        "而 `model = torch.compile(model)` 会加上 `_orig_mod.` 前缀。",
    ),
    "CO510": ProblemWords(
        Words("Attention is written out, and its scores go through memory", "注意力是手写的，得分矩阵要经过显存"),
        "`softmax(q @ k.T / scale + mask) @ v` 逐个操作地写成：缩放、掩码、softmax、dropout 每一个都要把长度×长度的"
        "得分矩阵读写一遍，反向再来一遍。一个注意力 kernel 把得分留在芯片上。",
        "用 `torch.nn.functional.scaled_dot_product_attention(q, k, v, ...)`；因果掩码写 `is_causal=True`，"
        "不另给掩码。",
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
    "CO513": ProblemWords(
        Words("A module computes the same result again", "模块把同样的结果又算了一遍"),
        "同一步里，同一个模块用同样的输入算了两次：生成器为每个损失各调用一次，为了一个指标又调用一次模型，"
        "编码器为每个头各跑一遍。结果早已知道，反向还要把两遍都走一次。",
        "保留第一次的结果并重复使用：`fake = generator(z)` 只算一次，再用 `critic(fake)`，不需要梯度的地方用 "
        "`critic(fake.detach())`；指标用训练已经算出的 `logits.detach()`。",
    ),
    "CO514": ProblemWords(
        Words("Gradients are computed that no optimizer uses", "计算了没有优化器使用的梯度"),
        "一个模块（教师网络、冻结的骨干、感知损失网络）带着梯度参与训练步，但它的权重不在任何优化器里；"
        "或者它的权重在某个优化器里，但梯度在该优化器更新之前就被清掉了：训练 GAN 的判别器时，`generator(z)` 没有 "
        "`detach()`。每一步都算出这些梯度，却没有人读取。",
        "如果模块之前没有什么需要梯度，就在 `torch.no_grad()` 下调用它；如果梯度必须穿过它，"
        "就在训练前关掉它权重的梯度：`teacher.requires_grad_(False)`。梯度算完又被清掉的地方，对模块的结果用 detach："
        "`critic(generator(z).detach())`。只要输入的梯度时（对抗攻击、Langevin 采样），用 "
        "`(slope,) = torch.autograd.grad(loss, x)` 代替 `loss.backward()`。",
    ),
    "CO515": ProblemWords(
        Words("Several backward passes over one graph", "在同一张图上做了多次反向"),
        "每个损失各调用一次 `backward(retain_graph=True)`，它们共有的那部分图每次都要重新走一遍：主干的反向做了好几次，"
        "激活值也要一直保留。",
        "先把损失相加，再做一次反向：`sum(losses).backward()`，不需要 `retain_graph`。梯度除舍入外相同。",
    ),
    "CO516": ProblemWords(
        Words("The model computes in float64", "模型以 float64 计算"),
        "权重和激活值都是 float64：模型被改成了这样（`model.double()`、`torch.set_default_dtype(torch.float64)`），"
        "或者跟随了 numpy 数组的默认类型。每个值占两倍的字节，处理器一次只能算一半，多数 GPU 的 float64 单元只有 1/32 "
        "或 1/64。",
        "让模型和输入都是 float32：去掉 `.double()`，numpy 数组变成张量时指定类型：`torch.from_numpy(x).float()`。"
        "损失从第七位数字起会不同；方法确实需要这些位数的部分可以保留 float64。",
    ),
    "CO517": ProblemWords(
        Words("A dense gradient for a large table with few rows in use", "大表只用到少数行，梯度却是稠密的"),
        "一个行数很多的 embedding，一批数据只取其中几千行；它的梯度却和整张表一样大，其余行全是零，优化器仍要走遍全部："
        "反向填满与表同样大小的梯度，优化器把表、梯度和状态读写好几遍。",
        "用 `nn.Embedding(..., sparse=True)`，并用接受稀疏梯度的优化器：`SGD`、`Adagrad` 可以直接用，"
        "对这张表用 `torch.optim.SparseAdam` 代替 `Adam`，其余参数用另一个优化器。"
        "使用 SparseAdam 时一行只在被取到时更新，损失会不同。",
    ),
    "CO518": ProblemWords(
        Words("A matrix of zeros is multiplied as a dense one", "几乎全是零的矩阵按稠密矩阵相乘"),
        "图的邻接矩阵、词袋、one-hot 行：矩阵乘法的一个因子只有百分之几的值不为零，却连同所有的零一起保存和相乘，"
        "前向和反向都如此。",
        "把它保存为稀疏矩阵：训练前做一次 `adjacency = adjacency.to_sparse_csr()`，`adjacency @ h` 保持不变。"
        "one-hot 行用 `nn.Embedding`，词袋用 `nn.EmbeddingBag`，一批小图用一个边列表加 `index_add_`。",
    ),
    "CO519": ProblemWords(
        Words("Most of what is computed has no effect on the loss", "算出的结果大多不影响损失"),
        "为所有位置计算结果，而损失只读取其中少数：只有七分之一的词被掩盖，却为每个词算出整个词表的分数；只有部分节点有"
        "标签，却算出所有节点的输出；每个专家处理每个词，而只有一个被选中。反向再把零梯度传回去。",
        "先挑出位置，再为它们计算：`loss(decoder(h[masked]), words[masked])`，而不是带 `ignore_index` 的 "
        "`loss(decoder(h), labels)`。",
    ),
    "CO520": ProblemWords(
        Words("A sequence is computed from its start for each element", "为每个元素都从头计算整个序列"),
        "模块在循环里被反复调用，输入一次比一次长：对每个 `t` 调用 `model(tokens[:, :t + 1])[:, -1]`，"
        "RNN 的每一步都重跑到目前为止的全部，或者先 `seq = torch.cat([seq, new], 1)` 再 `model(seq)`。"
        "第一个元素在每次调用里都要重新计算，本可随长度线性增长的工作变成平方增长，反向也是如此。",
        "RNN 传递隐藏状态，每次只给新的元素：`out, state = rnn(new, state)`；带因果掩码的注意力缓存已算过的 key 和 "
        "value。如果循环之前所有元素都已知（teacher forcing），用因果掩码（或 RNN）调用一次就得到所有位置的结果。"
        "模型需要向后看（没有因果掩码、双向 RNN）时，这样做是必要的。",
    ),
    "CO521": ProblemWords(
        Words("Numbers so small that the processor computes them slowly", "数值太小，处理器算得很慢"),
        "不断衰减、却从不置零的值：指数衰减的轨迹、声音的尾部、窗函数、被正则项压小的权重。float32 小于 1e-38 时以"
        "非规格化数保存，许多处理器遇到它就离开快速路径，一次乘法要花十倍到百倍的时间。GPU 没有这个问题。",
        "在脚本开头、torch 做任何计算之前调用 `torch.set_flush_denormal(True)`，这样的数一出现就成为零；"
        "或者在衰减的地方置零：`trace[trace < 1e-20] = 0`。损失除舍入外相同。",
    ),
    "CO522": ProblemWords(
        Words("Parts of a tensor are picked one by one", "逐个取出张量的一部分"),
        "循环里对需要梯度的张量取 `x[:, t]`：每次取出在反向时都会生成一个和整个 `x` 一样大、几乎全为零的梯度，"
        "再逐个相加。400 个位置就要填写 400 遍、再读和加 400 遍 `x` 那么大的内存。",
        "在循环之前一次拆开：`for part in x.unbind(1):`，或者 `x.split(...)`、`x.chunk(...)`，反向时所有部分的梯度一次"
        "拼好。能用 `torch.nn.RNN`、卷积或累积和代替的循环，收益更大。损失不变。",
    ),
    "CO523": ProblemWords(
        Words("All pairs are formed only to be summed", "逐一写出所有成对的值，只为求和"),
        "用广播计算每行与每行的距离或内积：`(a[:, None] - b).pow(2).sum(2)`、`(a[:, None] * b).sum(2)`。一千行、"
        "一千列、每个 64 个值，就要把 6400 万个值写进内存，前向和反向再各读写几遍；矩阵乘法在算出时就直接累加。",
        "内积的和就是 `a @ b.T`；平方距离是 `a.pow(2).sum(1)[:, None] + b.pow(2).sum(1) - 2 * a @ b.T`，"
        "用 `.clamp(min=0)` 防止小于零；`torch.cdist(a, b)` 是它的平方根。损失除舍入外相同。",
    ),
    "CO525": ProblemWords(
        Words("Operations that are quicker in another form", "换一种写法更快的运算"),
        "运算的耗时取决于写法，而不是要算的内容：把同一个矩阵扩展到整个批次，再逐个相乘或分解；长度含大质因数的傅里叶"
        "变换；对同一个矩阵做几次分解，或者先求逆再相乘；先放大图像、再做 1x1 卷积；连乘的矩阵从计算量大的一侧乘起。",
        "用一次乘法 `x @ weight.T` 代替 `bmm`；只分解一次，再把结果 `expand`；傅里叶变换补零到只含因数 2、3、5 的"
        "长度；用一次 `torch.linalg.cholesky` 代替求逆和 `logdet`；把 1x1 卷积放到放大之前；给连乘加括号，先算便宜的。"
        "损失除舍入外相同；没有补零的信号换长度会改变结果。",
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
    "co501.cause_kernels": Words(
        "float32 matrix products run without the tensor cores for {products_ms:.3g} of each {step_ms:.3g} ms step",
        "每步 {step_ms:.3g} ms 中有 {products_ms:.3g} ms 的 float32 矩阵乘法没有用张量核心",
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
    "co502.source_title": Words("No mixed precision", "没有使用混合精度"),
    "co502.source_cause": Words(
        "this training computes everything on the GPU in float32: no autocast, fp16 or bf16 in any of its files",
        "这个训练在 GPU 上全部以 float32 计算：所有文件里都没有 autocast、fp16 或 bf16",
    ),
    # CO503
    "co503.cause": Words(
        "{switch} is set, so the fastest kernels are not chosen", "{switch} 生效中，因此没有选用最快的 kernel"
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
    # CO505
    "co505.cause": Words(
        "a kernel runs {util:.0f}% of the time, but only {sm_active:.0%} of the GPU is active",
        "{util:.0f}% 的时间有 kernel 在跑，但 GPU 只有 {sm_active:.0%} 活跃",
    ),
    "co505.change": Words(
        "{more:.0f} samples a step instead of {samples:.0f}, and the learning rate to match",
        "每步 {more:.0f} 个样本，而不是 {samples:.0f} 个，学习率相应调整",
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
    "padding.frames": Words("frames that hold only the value {value:.3g}", "整帧都是 {value:.3g}"),
    "padding.told": Words("beyond the lengths that come with the batch", "超出随批次给出的长度"),
    "co507.change": Words(
        "draw batches from sequences of about the same length, or pack several into a row",
        "把长度相近的序列放进同一批，或把几条序列拼进一行",
    ),
    "co507.change_trim": Words(
        "pad each batch to its own longest sequence only, and draw batches from sequences of about the same length, or"
        " pack several into a row",
        "每批只填充到本批最长，并且把长度相近的序列放进同一批，或把几条序列拼进一行",
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
    "co509.cause": Words(
        "kernels that only move memory take {moving_ms:.3g} of each {step_ms:.3g} ms step ({share:.0%}), each operation"
        " by itself",
        "每步 {step_ms:.3g} ms 中，只搬运显存的 kernel 占 {moving_ms:.3g} ms（{share:.0%}），每个操作各自读写一遍",
    ),
    "co509.source_cause": Words(
        "nothing in this training is compiled: each operation is a kernel that the host launches",
        "这个训练里没有任何编译：每个操作都是主机单独发射的 kernel",
    ),
    "co509.source_change": Words(
        "model.compile() once it is on the GPU, if the shapes of its inputs seldom change",
        "如果输入形状很少变化，模型移到设备之后调用 model.compile()",
    ),
    # CO510
    "co510.cause": Words(
        "attention is written as products with a softmax between, {calls:.3g} times a step: its scores, up to {rows} by"
        " {columns}, move {gb:.3g} GB through memory",
        "注意力写成两次乘法夹一个 softmax，每步 {calls:.3g} 次：得分矩阵最大 {rows}×{columns}，"
        "共有 {gb:.3g} GB 经过显存",
    ),
    "co510.change": Words(
        "torch.nn.functional.scaled_dot_product_attention(q, k, v); is_causal=True for a causal mask",
        "改用 torch.nn.functional.scaled_dot_product_attention(q, k, v)；因果掩码用 is_causal=True",
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
    # CO513
    "co513.cause": Words(
        "{calls:.3g} calls a step compute again what is known since {first} ({module}): {ms:.3g} of each {step_ms:.3g}"
        " ms step, backward included",
        "每步有 {calls:.3g} 次调用重新计算 {first} 处已经算出的结果（{module}）："
        "每步 {step_ms:.3g} ms 中占 {ms:.3g} ms，包括反向",
    ),
    "co513.change_same": Words(
        "keep the result of {first} and use it again (detached, where no gradient may go through it)",
        "保留 {first} 的结果并重复使用（不该有梯度穿过的地方用 detach）",
    ),
    "co513.change_state": Words(
        "keep the result of {first} and use it again; running statistics are then updated once, not several times",
        "保留 {first} 的结果并重复使用；这样运行统计量只更新一次，而不是多次",
    ),
    "co513.change_random": Words(
        "use the result of {first}, detached; with dropout it is not the same to the bit",
        "使用 {first} 的结果（detach）；有 dropout 时结果不会逐位相同",
    ),
    # CO514
    "co514.cause": Words(
        "no optimizer has the weights of {module}, called at {line}, yet backward goes through it: {ms:.3g} of each"
        " {step_ms:.3g} ms step",
        "{module}（在 {line} 调用）的权重不属于任何优化器，反向却要经过它：每步 {step_ms:.3g} ms 中占 {ms:.3g} ms",
    ),
    "co514.change_whole": Words("call {module} under torch.no_grad()", "在 torch.no_grad() 下调用 {module}"),
    "co514.change_through": Words(
        "{module}.requires_grad_(False) before training: gradients still go through it, none are made for its weights",
        "训练前对 {module} 调用 requires_grad_(False)：梯度仍会穿过它，但不再为它的权重计算梯度",
    ),
    "co514.cause_dropped": Words(
        "backward goes through what {line} computes, but the gradients of its weights are cleared before their"
        " optimizer steps: {ms:.3g} of each {step_ms:.3g} ms step",
        "反向经过 {line} 处的计算，但那些权重的梯度在它们的优化器更新之前就被清掉了："
        "每步 {step_ms:.3g} ms 中占 {ms:.3g} ms",
    ),
    "co514.change_dropped": Words(
        "detach the result of {line}, or compute it under torch.no_grad(): its gradients are not used there",
        "对 {line} 的结果用 .detach()，或在 torch.no_grad() 下计算：那里的梯度没有用处",
    ),
    "co514.cause_for_input": Words(
        "the backward at {line} is for the gradient of an input; those of the weights, which it computes as well, are"
        " cleared before the optimizer steps: what makes them takes {ms:.3g} of each {step_ms:.3g} ms step",
        "{line} 的反向是为了得到输入的梯度；它同时算出的权重梯度在优化器更新之前就被清掉了：计算它们的运算在每步"
        " {step_ms:.3g} ms 中占 {ms:.3g} ms",
    ),
    "co514.change_for_input": Words(
        "ask for the input's gradient alone at {line}: (slope,) = torch.autograd.grad(loss, x)",
        "在 {line} 只求输入的梯度：(slope,) = torch.autograd.grad(loss, x)",
    ),
    # CO515
    "co515.cause": Words(
        "{passes:.3g} backward passes a step go again over parts of the graph that an earlier one has gone over:"
        " {ms:.3g} of each {step_ms:.3g} ms step",
        "每步有 {passes:.3g} 次反向重新经过之前已走过的那部分图：每步 {step_ms:.3g} ms 中占 {ms:.3g} ms",
    ),
    "co515.change": Words(
        "add the losses up and call backward once, without retain_graph: sum(losses).backward()",
        "把损失相加后只做一次反向，不用 retain_graph：sum(losses).backward()",
    ),
    # CO516
    "co516.cause": Words(
        "{share:.0%} of what the passes compute is in float64, in {passes_ms:.3g} of each {step_ms:.3g} ms step;"
        " float32 takes half the bytes and twice as many values at once",
        "各阶段的计算有 {share:.0%} 是 float64，占每步 {step_ms:.3g} ms 中的 {passes_ms:.3g} ms；float32 的字节减半，"
        "一次能算的值加倍",
    ),
    "co516.change": Words(
        "make the model and its inputs float32 (torch.from_numpy(x).float()), if seven digits are enough",
        "如果七位有效数字足够，让模型和输入都用 float32（torch.from_numpy(x).float()）",
    ),
    "co516.change_there": Words(
        "leave it out, and give the model float32 inputs, if seven digits are enough",
        "如果七位有效数字足够，去掉它，并给模型 float32 的输入",
    ),
    # CO517
    "co517.cause": Words(
        "a step picks {picked:.2%} of the table made at {line}, yet backward fills a gradient of its size and"
        " {optimizer} goes over all of it: {ms:.3g} of each {step_ms:.3g} ms step",
        "一步只取 {line} 处的表的 {picked:.2%}，反向却要填满同样大小的梯度，{optimizer} 也要走遍全部："
        "每步 {step_ms:.3g} ms 中占 {ms:.3g} ms",
    ),
    "co517.change_same": Words(
        "sparse=True for the table: its optimizer takes sparse gradients, and trains as before",
        "给这张表加 sparse=True：它的优化器接受稀疏梯度，训练结果不变",
    ),
    "co517.change_decays": Words(
        "sparse=True for the table, if rows need no momentum or decay in steps that do not pick them",
        "如果未取到的行不需要动量或衰减，给这张表加 sparse=True",
    ),
    "co517.change": Words(
        "sparse=True for the table, and SparseAdam for it beside the optimizer of the rest: a row then moves only when"
        " it is picked, so losses differ",
        "给这张表加 sparse=True，并用 SparseAdam 单独更新它：一行只在被取到时更新，因此损失会不同",
    ),
    # CO518
    "co518.cause": Words(
        "{density:.2%} of a factor of the product at {line} is not zero; sparse, as timed here, its products take"
        " {ms:.3g} of each {step_ms:.3g} ms step less",
        "{line} 处矩阵乘法的一个因子只有 {density:.2%} 不为零；按在本机的计时，稀疏相乘可从每步 {step_ms:.3g} ms 中省去"
        " {ms:.3g} ms",
    ),
    "co518.change": Words(
        "hold it sparse, made once before the training (to_sparse_csr()), or as an embedding if its rows are one-hot",
        "训练前把它做成稀疏矩阵（to_sparse_csr()）；如果各行是 one-hot，就用 embedding",
    ),
    # CO519
    "co519.cause": Words(
        "the loss reads none of {share:.0%} of what {line} computes, yet it is computed and passed back: {ms:.3g} of"
        " each {step_ms:.3g} ms step",
        "{line} 算出的结果有 {share:.0%} 损失并不读取，却仍要计算并反向传回：每步 {step_ms:.3g} ms 中占 {ms:.3g} ms",
    ),
    "co519.change": Words(
        "pick the positions that the loss reads before {line}, and compute for these only",
        "在 {line} 之前挑出损失要读取的位置，只为它们计算",
    ),
    # CO520
    "co520.cause": Words(
        "{module} is called {calls:.3g} times a step at {line}, with {first:.3g} to {last:.3g} elements of the same"
        " sequence, so each is computed {times:.3g} times: {ms:.3g} of each {step_ms:.3g} ms step, backward included",
        "{module} 在 {line} 每步被调用 {calls:.3g} 次，输入是同一序列的 {first:.3g} 到 {last:.3g} 个元素，"
        "每个元素平均计算 {times:.3g} 遍：每步 {step_ms:.3g} ms 中占 {ms:.3g} ms，包括反向",
    ),
    "co520.change": Words(
        "give {module} the new element only, and keep its hidden state (RNN) or its keys and values (attention with a"
        " causal mask) from call to call; if all elements are known before, call it once for all",
        "每次只把新元素给 {module}，并在调用之间保留它的隐藏状态（RNN）或 key 和 value（带因果掩码的注意力）；"
        "如果所有元素事先已知，就只调用一次",
    ),
    "co520.change_known": Words(
        "all elements are known before the first call: call {module} once, with a causal mask if it has attention, and"
        " take the results of all positions",
        "所有元素在第一次调用之前就已知：只调用一次 {module}（有注意力时加因果掩码），取所有位置的结果",
    ),
    # CO521
    "co521.cause": Words(
        "{share:.2%} of the values that {line} computes with are so small that this processor computes them slowly;"
        " with zeros in their place, as timed here, the same operations take {ms:.3g} of each {step_ms:.3g} ms step"
        " less",
        "{line} 所用的值有 {share:.2%} 太小，本机处理器算得很慢；按在本机的计时，把它们换成零，同样的运算可从每步"
        " {step_ms:.3g} ms 中省去 {ms:.3g} ms",
    ),
    "co521.change": Words(
        "torch.set_flush_denormal(True) at the start of the script, or set such values to zero where they fade",
        "在脚本开头调用 torch.set_flush_denormal(True)，或在数值衰减的地方把它们置零",
    ),
    # CO522
    "co522.cause": Words(
        "{picks:.3g} parts of one tensor are picked one by one at {line}, and backward fills a tensor of its size for"
        " each: {ms:.3g} of each {step_ms:.3g} ms step",
        "{line} 从一个张量逐个取出 {picks:.3g} 个部分，反向时每个都要填满同样大小的张量：每步 {step_ms:.3g} ms 中占"
        " {ms:.3g} ms",
    ),
    "co522.change": Words(
        "take the tensor apart once before the loop at {line}, with unbind(), split() or chunk()",
        "在 {line} 的循环之前用 unbind()、split() 或 chunk() 把张量一次拆开",
    ),
    # CO523
    "co523.cause": Words(
        "{line} forms {values} values for each of {rows} x {columns} pairs, only to sum them; as a matrix product, as"
        " timed here, that takes {ms:.3g} of each {step_ms:.3g} ms step less",
        "{line} 为 {rows} x {columns} 对中的每一对写出 {values} 个值，然后只是求和；按在本机的计时，改用矩阵乘法可从"
        "每步 {step_ms:.3g} ms 中省去 {ms:.3g} ms",
    ),
    # CO524
    "co524.cause": Words(
        "torch computes on {threads} of {processors} processors, and the others are idle; the passes take"
        " {passes_ms:.3g} of each {step_ms:.3g} ms step, and products of their sizes are {times:.2g} times as quick"
        " with all of them, as timed here",
        "torch 只用 {processors} 个处理器中的 {threads} 个，其余空闲；前向、反向和优化器在每步 {step_ms:.3g} ms 中占"
        " {passes_ms:.3g} ms，按在本机的计时，同样大小的矩阵乘法用上全部处理器快 {times:.2g} 倍",
    ),
    "co524.change": Words(
        "let torch have all of them: torch.set_num_threads({processors}), or OMP_NUM_THREADS={processors}",
        "让 torch 用上全部处理器：torch.set_num_threads({processors})，或 OMP_NUM_THREADS={processors}",
    ),
    "co523.change": Words("compute the sums as a matrix product, a @ b.T", "用矩阵乘法 a @ b.T 计算这些和"),
    "co523.change_distance": Words(
        "compute the distances with a matrix product: torch.cdist(a, b), or for squares a.pow(2).sum(1)[:, None] +"
        " b.pow(2).sum(1) - 2 * a @ b.T",
        "用矩阵乘法计算距离：torch.cdist(a, b)，平方距离用 a.pow(2).sum(1)[:, None] + b.pow(2).sum(1) - 2 * a @ b.T",
    ),
    # CO525
    "co525.cause_product": Words(
        "{line} multiplies each of a batch of {count} with the same matrix; done once for the whole batch, as timed"
        " here, that takes {ms:.3g} of each {step_ms:.3g} ms step less",
        "{line} 把批次中的 {count} 项逐个与同一个矩阵相乘；按在本机的计时，对整个批次只算一次可从每步 {step_ms:.3g} ms"
        " 中省去 {ms:.3g} ms",
    ),
    "co525.change_product": Words(
        "keep the matrix as it is, without expand() or repeat(), and multiply all rows with it: x @ weight.T, or"
        " F.linear(x, weight)",
        "不要对矩阵调用 expand() 或 repeat()，用它一次乘完所有行：x @ weight.T，或 F.linear(x, weight)",
    ),
    "co525.cause_factorization": Words(
        "{line} factors the same matrix (torch.linalg.{names}) for each of a batch of {count}; done once, as timed"
        " here, that takes {ms:.3g} of each {step_ms:.3g} ms step less",
        "{line} 为批次中的 {count} 项各把同一个矩阵分解一次（torch.linalg.{names}）；按在本机的计时，只做一次可从每步"
        " {step_ms:.3g} ms 中省去 {ms:.3g} ms",
    ),
    "co525.change_factorization": Words(
        "call torch.linalg.{names} on the matrix itself, and expand the result over the batch",
        "对矩阵本身调用 torch.linalg.{names}，再把结果扩展到整个批次",
    ),
    "co525.cause_transform": Words(
        "{line} computes Fourier transforms of length {length}, which has large prime factors; of length {other}, as"
        " timed here, they take {ms:.3g} of each {step_ms:.3g} ms step less",
        "{line} 做长度为 {length} 的傅里叶变换，这个长度含有大质因数；按在本机的计时，长度为 {other} 时可从每步"
        " {step_ms:.3g} ms 中省去 {ms:.3g} ms",
    ),
    "co525.change_padded": Words(
        "pad the signal to {other} instead, n={other}, in the inverse transform too: a convolution gives the same",
        "改为补零到 {other}，即 n={other}，逆变换也一样：卷积的结果不变",
    ),
    "co525.change_transform": Words(
        "choose a length without large prime factors, such as {other}; where the signal is not padded anyway, this"
        " changes what is computed",
        "选一个不含大质因数的长度，例如 {other}；如果信号本来没有补零，这会改变计算结果",
    ),
    "co525.cause_factored_again": Words(
        "{line} factors one matrix of {size} x {size} several times or more than is needed (torch.linalg: {names});"
        " with a single factorization, as timed here, that takes {ms:.3g} of each {step_ms:.3g} ms step less",
        "{line} 对同一个 {size} x {size} 矩阵的分解超出所需（torch.linalg：{names}）；按在本机的计时，只分解一次可从"
        "每步 {step_ms:.3g} ms 中省去 {ms:.3g} ms",
    ),
    "co525.change_factored_again": Words(
        "factor it once: for a symmetric positive definite one factor = torch.linalg.cholesky(matrix), with"
        " torch.cholesky_solve(right, factor) for the inverse and 2 * factor.diagonal().log().sum() for logdet; else"
        " torch.linalg.lu_factor() and torch.linalg.lu_solve()",
        "只分解一次：对称正定矩阵用 factor = torch.linalg.cholesky(matrix)，以 torch.cholesky_solve(right, factor) 代替"
        "求逆，以 2 * factor.diagonal().log().sum() 代替 logdet；其他矩阵用 torch.linalg.lu_factor() 和"
        " torch.linalg.lu_solve()",
    ),
    "co525.cause_enlarged": Words(
        "{line} convolves with kernels of 1 x 1 after an interpolation to {pixels:.3g} times as many pixels; before it,"
        " as timed here, that takes {ms:.3g} of each {step_ms:.3g} ms step less",
        "{line} 在插值把像素增加到 {pixels:.3g} 倍之后做 1 x 1 卷积；按在本机的计时，放到插值之前可从每步"
        " {step_ms:.3g} ms 中省去 {ms:.3g} ms",
    ),
    "co525.change_enlarged": Words(
        "convolve first and interpolate the result: the same but for rounding",
        "先做卷积，再对结果插值：除舍入外相同",
    ),
    "co525.cause_chain": Words(
        "{line} multiplies a chain of matrices ({shapes}) from the wrong side, as {now}; as {order}, as timed here,"
        " that takes {ms:.3g} of each {step_ms:.3g} ms step less",
        "{line} 从计算量大的一侧连乘几个矩阵（{shapes}），即 {now}；按在本机的计时，改为 {order} 可从每步"
        " {step_ms:.3g} ms 中省去 {ms:.3g} ms",
    ),
    "co525.change_chain": Words(
        "write {order}, with these letters for the matrices from left to right: the same but for rounding",
        "写成 {order}，字母从左到右依次代表各个矩阵：除舍入外相同",
    ),
}

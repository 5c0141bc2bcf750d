"""Remedies of precision, kernels and memory: why one is or is not used, and what it did."""

from __future__ import annotations

from .render import Words

TABLE: dict[str, Words] = {
    "bf16.tf32_slower": Words(
        "the tensor cores work in TF32, which is half as fast as bf16",
        "张量核心以 TF32 工作，速度只有 bf16 的一半",
    ),
    "fp16.no_bf16": Words(
        "float32 products do not use the tensor cores, and this GPU has none for bf16",
        "float32 矩阵乘法没有使用张量核心，而这块 GPU 不支持 bf16",
    ),
    "fp16.bf16_as_fast": Words(
        "precision.bf16 needs no scaled gradients and is as fast on this GPU",
        "precision.bf16 不需要缩放梯度，在这块 GPU 上同样快",
    ),
    "fp16.unknown_backward": Words(
        "torch {version} has another backward than the ones known",
        "torch {version} 的 backward 与已知的不同",
    ),
    "fp16.result_hook": Words("{call} on a result would see scaled gradients", "结果上的 {call} 会看到缩放后的梯度"),
    "fp16.several_devices": Words("the model is spread over {devices} devices", "模型分布在 {devices} 个设备上"),
    "fp16.anomaly_mode": Words(
        "anomaly mode is on: it takes an overflow for a fault", "异常检测已开启：它会把溢出当作错误"
    ),
    "fp16.hook": Words("a hook on {module} would see scaled gradients", "{module} 上的钩子会看到缩放后的梯度"),
    "fp16.closure": Words(
        "optimizer.step is given a closure, which runs passes within a step",
        "optimizer.step 得到一个闭包，它会在一步内运行多次传播",
    ),
    "fp16.other_tensors": Words(
        "the loss gives gradients to tensors that belong to no optimizer and no module",
        "损失把梯度传给了不属于任何优化器和模块的张量",
    ),
    "fp16.parameter_hook": Words(
        "a hook on a parameter of {module} would see scaled gradients",
        "{module} 的参数上的钩子会看到缩放后的梯度",
    ),
    "fp16.create_graph": Words(
        "backward(create_graph=True) would go on with scaled gradients",
        "backward(create_graph=True) 会继续使用缩放后的梯度",
    ),
    "fp16.overflows": Words("{skipped:.0f} of {steps} steps overflowed", "{steps} 步中有 {skipped:.0f} 步溢出"),
    "fp16.sees_scaled": Words("{call} would see scaled gradients", "{call} 会看到缩放后的梯度"),
    "flush_denormal.none_seen": Words(
        "no subnormal numbers were seen in what the training computes with", "没有看到训练用到非规格化数"
    ),
    "flush_denormal.unsupported": Words(
        "this processor cannot take subnormal numbers for zero", "这个处理器不能把非规格化数当作零"
    ),
    "tf32.no_products": Words(
        "no float32 products were seen that tensor cores would speed up",
        "没有看到张量核心能加速的 float32 矩阵乘法",
    ),
    "tf32.half_precision": Words("products are done in half precision", "矩阵乘法已是半精度"),
    "tf32.on_already": Words("it is on already: the precision is {precision!r}", "已经开启：精度为 {precision!r}"),
    "precision.tensor_cores_idle": Words(
        "the GPU computes in float32 for a good part of the time, its tensor cores hardly at all",
        "GPU 有相当一部分时间以 float32 计算，张量核心几乎不工作",
    ),
    "precision.own_autocast": Words("the script sets it itself: it uses autocast", "脚本自己设置：它使用 autocast"),
    "precision.own_switch": Words(
        "the script sets it itself: it has an autocast that is switched off; use its own option",
        "脚本自己设置：它有一个关闭的 autocast；请使用脚本自己的选项",
    ),
    "precision.no_bf16": Words(
        "{device} does not compute in bf16; precision.fp16 may help",
        "{device} 不支持 bf16 计算；precision.fp16 或许有用",
    ),
    "precision.own_weights": Words(
        "the script sets it itself: {module} has weights in {dtypes}",
        "脚本自己设置：{module} 有 {dtypes} 的权重",
    ),
    "precision.own_functions": Words(
        "{functions} in {module}: autograd functions without torch.amp.custom_fwd cannot be autocast",
        "{module} 中的 {functions}：没有 torch.amp.custom_fwd 的 autograd 函数不能使用 autocast",
    ),
    "precision.no_autocast": Words("there is no autocast for {device}", "{device} 没有 autocast"),
    "precision.not_finite": Words(
        "the loss is no longer finite; what it did to the weights stays",
        "损失不再是有限值；它对权重的影响会保留",
    ),
    "precision.own_autocast_off": Words(
        "the script has one of its own, which is switched off; it is taken to be on",
        "脚本有自己的 autocast，但处于关闭状态；按开启处理",
    ),
    "precision.not_bound": Words(
        "the GPU was not seen to be held up by its arithmetic in float32",
        "没有看到 GPU 受限于 float32 运算",
    ),
    "precision.already_half": Words(
        "{share:.0%} of the results in the graph are in half precision already",
        "计算图中 {share:.0%} 的结果已是半精度",
    ),
    "precision.no_tensor_cores": Words(
        "float32 products do not use the tensor cores", "float32 矩阵乘法没有使用张量核心"
    ),
    "cudnn.first_algorithm": Words(
        "the model has convolutions, and cudnn takes the first algorithm it thinks of",
        "模型有卷积，而 cudnn 直接采用启发式选出的第一个算法",
    ),
    "cudnn.deterministic": Words(
        "the script asks for deterministic algorithms; that is its own choice",
        "脚本要求确定性算法，这是它自己的选择",
    ),
    "cudnn.no_convolutions": Words("hardly any convolutions were seen", "几乎没有看到卷积"),
    "cudnn.deterministic_asked": Words("deterministic algorithms are asked for", "要求使用确定性算法"),
    "cudnn.shapes_change": Words(
        "inputs had {new} new shapes in {calls} calls, and each is timed anew",
        "{calls} 次调用中输入出现了 {new} 种新形状，每种都要重新计时",
    ),
    "layout.none": Words(
        "no convolutions in half precision were seen with channels first", "没有看到通道在前的半精度卷积"
    ),
    "layout.compiled": Words(
        "the model is compiled, and the compiler chooses a layout", "模型已编译，内存布局由编译器选择"
    ),
    "layout.channels_first": Words(
        "convolutions in half precision run with channels first", "半精度卷积以通道在前的布局运行"
    ),
    "layout.with_half": Words(
        "convolutions with channels first gain little by half precision alone",
        "通道在前的卷积单靠半精度收益很小",
    ),
    "layout.no_convolutions": Words("the model has no two-dimensional convolutions", "模型没有二维卷积"),
    "layout.shared_memory": Words(
        "the weights share their memory with others, which a new layout would part them from",
        "权重与其他张量共享内存，改变布局会把它们分开",
    ),
    "layout.script_compiles": Words(
        "the script compiles the model, and the compiler chooses a layout",
        "脚本会编译模型，内存布局由编译器选择",
    ),
    "layout.buffers_laid_out": Words(
        "{module} has laid out its buffers for channels first already",
        "{module} 的缓冲区已按通道在前布局",
    ),
    "layout.view": Words(
        "the script takes a view of a weight or a gradient, which needs the channels first",
        "脚本对权重或梯度取 view，需要通道在前",
    ),
    "optimizer.share": Words(
        "the optimizer's step takes {percent:.0f}% of the training's time; fused it is one kernel",
        "优化器更新占训练时间的 {percent:.0f}%；融合后只需一个 kernel",
    ),
    "optimizer.own_class": Words("its class is not torch's own", "它的类不是 torch 自带的"),
    "optimizer.sparse": Words("its gradients are sparse", "它的梯度是稀疏的"),
    "optimizer.one_form": Words("its class has one form only", "它的类只有一种实现方式"),
    "optimizer.short": Words("the optimizer's step was not seen to take long", "没有看到优化器更新耗时较长"),
    "optimizer.script_chooses": Words(
        "the script chooses the optimizer's form itself", "脚本自己选择了优化器的实现方式"
    ),
    "optimizer.small_operations": Words(
        "the optimizer goes over the parameters in many small operations",
        "优化器用大量小操作逐个更新参数",
    ),
    "optimizer.set_by_script": Words("the script sets {option} itself", "脚本自己设置了 {option}"),
    "optimizer.sets": Words("the script sets {option}", "脚本设置了 {option}"),
    "optimizer.unfusible": Words("parameters came that a fused kernel cannot take", "加入了融合 kernel 无法处理的参数"),
    "optimizer.left_alone": Words("left alone, {why}", "保持不变，{why}"),
    "optimizer.told": Words("{optimizer}: {what}", "{optimizer}：{what}"),
    "compile.waits_for_memory": Words(
        "kernels that only move memory take much of the step, and fusing them spares most of that",
        "只搬运显存的 kernel 占了这一步的很大一部分，融合它们能省下大半",
    ),
    "compile.no_need": Words(
        "neither launching nor kernels that wait for memory were seen to hold the step up",
        "没有看到发射操作或等待显存的 kernel 拖住这一步",
    ),
    "attention.compiled": Words(
        "the script compiles, and the compiler looks for attention written by hand itself",
        "脚本会编译，而编译器会自己寻找手写的注意力",
    ),
    "attention.by_hand": Words(
        "attention is written by hand, with scores in memory that one kernel would not keep",
        "注意力是手写的，分数矩阵存放在内存中，而单个 kernel 不需要保存它",
    ),
    "attention.not_found": Words("no attention written by hand was found", "没有发现手写的注意力"),
    "attention.none": Words(
        "no attention written by hand was seen: no softmax of what a product gives",
        "没有看到手写的注意力：没有对矩阵乘积做 softmax",
    ),
    "attention.used": Words(
        "the script uses scores or weights of the attention for something else as well",
        "脚本还把注意力的分数或权重用于别处",
    ),
    "attention.no_module": Words("the attention is computed outside of all modules", "注意力在所有模块之外计算"),
    "attention.scaled_one_by_one": Words("the scores are scaled each by another factor", "每个分数各乘以不同的系数"),
    "attention.no_room": Words(
        "there is not enough memory to compare the fused kernel with the script's own form",
        "内存不足，无法将融合 kernel 与脚本自己的写法比较",
    ),
    "attention.other_rows": Words(
        "other rows are not a number than in the script's own form", "出现 NaN 的行与脚本自己的写法不同"
    ),
    "attention.rounds_more": Words(
        "the fused kernel is off by {times:.3g} times what the script's own form is off by",
        "融合 kernel 的误差是脚本自己写法的 {times:.3g} 倍",
    ),
    "attention.kernel_fails": Words(
        "the fused kernel cannot be used here ({error})", "这里不能使用融合 kernel（{error}）"
    ),
    "attention.differs": Words("{why}; earlier steps may be affected", "{why}；之前的步可能已受影响"),
    "attention.written_into": Words(
        "queries, keys, values or masks are changed in place within the step",
        "查询、键、值或掩码在一步之内被原地修改",
    ),
    "attention.create_graph": Words(
        "gradients are differentiated again (create_graph=True), which fused kernels cannot",
        "梯度会被再次求导（create_graph=True），融合 kernel 不支持",
    ),
    "attention.not_called": Words("it was not called", "它没有被调用"),
    "attention.nothing_fused": Words(
        "nothing could be replaced in {steps} steps: {why}", "{steps} 步内没有可替换的：{why}"
    ),
    "attention.slower": Words(
        "a step takes {after_ms:.3g} ms with the fused kernel and {before_ms:.3g} ms without",
        "使用融合 kernel 每步 {after_ms:.3g} ms，不使用 {before_ms:.3g} ms",
    ),
    "compile.already": Words("the script compiles already", "脚本已经在编译"),
    "compile.on_cpu": Words("it ran on the CPU, where compiling seldom pays", "运行在 CPU 上，编译很少划算"),
    "compile.short_run": Words(
        "the whole run takes {wall_s:.0f} s, compiling about a minute: that is not paid back",
        "整个运行只有 {wall_s:.0f} 秒，编译约需一分钟，收不回来",
    ),
    "compile.shapes_change": Words(
        "shapes change from batch to batch, and each would be compiled", "批次的形状一直在变，每种都要编译"
    ),
    "compile.forbidden": Words("{variable} forbids it", "{variable} 禁止编译"),
    "compile.fails": Words("{module} cannot be compiled ({error})", "{module} 无法编译（{error}）"),
    "compile.again": Words(
        "it was compiled {times} times more after it had settled: shapes or values keep changing",
        "稳定之后又编译了 {times} 次：形状或数值一直在变",
    ),
    "compile.unsettled": Words("it was still compiling after {steps} steps", "{steps} 步之后仍在编译"),
    "compile.slower": Words(
        "a step takes {after_ms:.3g} ms compiled and {before_ms:.3g} ms without",
        "编译后每步 {after_ms:.3g} ms，不编译 {before_ms:.3g} ms",
    ),
    "graphs.no_gradient": Words("its result has no gradient", "它的结果没有梯度"),
    "graphs.other_tensors": Words(
        "it uses trained tensors that are not among its parameters", "它使用了不属于自身参数的可训练张量"
    ),
    "graphs.no_room": Words(
        "its activations take {held_mib} MiB and would stay; {free_mib} MiB are free",
        "它的激活占 {held_mib} MiB 且会一直保留；空闲 {free_mib} MiB",
    ),
    "graphs.sparse": Words("it has sparse gradients", "它有稀疏梯度"),
    "graphs.replay_differs": Words(
        "a replay differs from the call itself by {tolerances:.2g} tolerances",
        "重放与直接调用相差容差的 {tolerances:.2g} 倍",
    ),
    "graphs.host_waits": Words("the host waits for the device within it", "其中主机会等待设备"),
    "graphs.replay_fails": Words(
        "a replay gives something else than the call itself ({text})", "重放的结果与直接调用不同（{text}）"
    ),
    "graphs.on_cpu": Words(
        "it ran on the CPU, and CUDA graphs are the GPU's", "运行在 CPU 上，而 CUDA graph 只属于 GPU"
    ),
    "graphs.script_compiles": Words(
        "the script compiles, and compiling can replay graphs itself",
        "脚本会编译，而编译本身就能重放 graph",
    ),
    "graphs.ranks": Words(
        "several processes train, and gradients are exchanged within the backward pass",
        "由多个进程训练，梯度在反向传播中交换",
    ),
    "graphs.shapes_change": Words(
        "shapes change from batch to batch, and a graph is of one shape",
        "批次的形状一直在变，而一个 graph 只对应一种形状",
    ),
    "graphs.both_wait": Words(
        "the host launches for most of each step, and the GPU still has time to spare",
        "每步大部分时间主机在发射，而 GPU 仍有空闲",
    ),
    "graphs.nothing_trained": Words("no module was seen to be trained in the step", "没有看到训练步中有模块在训练"),
    "graphs.other_device": Words(
        "{module} runs on the {device}, and CUDA graphs are the GPU's",
        "{module} 运行在 {device} 上，而 CUDA graph 只属于 GPU",
    ),
    "graphs.distributed": Words("several processes train together", "由多个进程一起训练"),
    "graphs.several_devices": Words("the model is spread over several devices", "模型分布在多个设备上"),
    "graphs.trained_buffers": Words("it has buffers that are trained", "它有参与训练的缓冲区"),
    "graphs.other_form": Words("its arguments have another form", "它的参数形式不同"),
    "graphs.open": Words("an earlier result is still to be differentiated", "之前的结果尚未做反向传播"),
    "graphs.differentiated_again": Words(
        "its graph is differentiated more than once, or in parts", "它的计算图被多次或分段做反向传播"
    ),
    "graphs.forms_change": Words("its arguments have another form at each call", "它的参数形式每次调用都不同"),
    "graphs.parametrized": Words(
        "the weights of {module} are computed anew at each use", "{module} 的权重在每次使用时重新计算"
    ),
    "graphs.recurrent": Words("{module} moves its weights about within the call", "{module} 在调用中移动自己的权重"),
    "graphs.part_compiled": Words("{module} is compiled", "{module} 已被编译"),
    "graphs.cannot_replay": Words("{module} cannot be replayed: {why}", "{module} 无法重放：{why}"),
    "graphs.differs": Words("{module}: {why}; earlier steps may be affected", "{module}：{why}；之前的步可能已受影响"),
    "graphs.parameter_hook": Words(
        "a hook on a parameter of {module} sees gradients before they are whole",
        "{module} 的参数上有钩子，会看到尚不完整的梯度",
    ),
    "graphs.not_called": Words("it was not called in training mode", "它没有在训练模式下被调用"),
    "graphs.nothing_recorded": Words(
        "nothing could be recorded in {steps} steps: {why}", "{steps} 步内没有录到任何东西：{why}"
    ),
    "graphs.slower": Words(
        "a step takes {after_ms:.3g} ms replayed and {before_ms:.3g} ms without",
        "重放时每步 {after_ms:.3g} ms，不重放时 {before_ms:.3g} ms",
    ),
    "graphs.cannot_record": Words("{module} cannot be recorded: {why}", "{module} 无法录制：{why}"),
    "graphs.recording_failed": Words("{module} could not be recorded ({error})", "{module} 录制失败（{error}）"),
    "graphs.other_device_tensor": Words("it is given a tensor on the {device}", "它得到了位于 {device} 上的张量"),
    "graphs.values_change": Words(
        "what it returns beside its tensors changes from call to call", "除张量以外的返回值每次调用都不同"
    ),
    "model.script_compiles": Words("the script compiles the model itself", "脚本自己编译模型"),
    "model.exchanges_gradients": Words(
        "{module} exchanges gradients within the backward pass", "{module} 在反向传播中交换梯度"
    ),
    "model.sparse": Words("{module} has sparse gradients", "{module} 有稀疏梯度"),
    "model.global_hook": Words(
        "a hook on all modules would be called at other times", "作用于所有模块的钩子会在别的时刻被调用"
    ),
    "model.failed": Words("{module} failed under it ({error})", "{module} 在此措施下失败（{error}）"),
    "model.hook": Words("a hook on {module} would be called at other times", "{module} 上的钩子会在别的时刻被调用"),
    "model.layers_one_by_one": Words(
        "the training step calls its layers one by one; there is no model around them",
        "训练步逐个调用各层，外面没有模型",
    ),
    "model.none": Words("no module was seen to run in the training step", "没有看到训练步中有模块运行"),
    "model.too_many": Words(
        "the training step calls {modules} modules one by one; there is none around them",
        "训练步逐个调用 {modules} 个模块，外面没有一个整体模型",
    ),
    "model.scripted": Words("the model is scripted by torch.jit", "模型是用 torch.jit 脚本化的"),
    "model.replaced": Words(
        "the model was replaced by another one while the first steps ran", "最初几步运行时模型被换成了另一个"
    ),
    "call.changes_arguments": Words("it changes its arguments in place", "它会原地修改参数"),
    "call.draws_on_host": Words("it draws random numbers on the host", "它在主机上抽取随机数"),
    "call.leaves_change": Words("it leaves something behind: {changed}", "它留下了改动：{changed}"),
    "call.tensor_layout": Words("a {kind} with the layout {layout}", "布局为 {layout} 的 {kind}"),
    "call.kind": Words("a {kind}", "{kind}"),
    "snapshot.changed": Words("{name} changed from {before!r} to {after!r}", "{name} 从 {before!r} 变为 {after!r}"),
    "snapshot.replaced": Words("{name} was replaced", "{name} 被替换"),
    "snapshot.parts": Words("hooks, parts or the contents of a list changed", "钩子、子模块或列表内容发生了变化"),
    "snapshot.moved": Words("weights or buffers were moved to other memory", "权重或缓冲区被移到了别的内存"),
    "snapshot.frozen": Words("weights were frozen or thawed", "权重被冻结或解冻"),
    "snapshot.incomparable": Words("a value that cannot be compared ({error})", "一个无法比较的值（{error}）"),
    "accumulate.statistics": Words(
        "{module} would take its statistics over a part of the batch; allow it with batchnorm=allow",
        "{module} 只会在批次的一部分上取统计量；可用 batchnorm=allow 允许",
    ),
    "accumulate.no_tensors": Words("its result has no tensors", "它的结果没有张量"),
    "accumulate.whole_mean": Words(
        "it returns a value for the whole batch, such as a mean", "它返回整个批次的值，例如均值"
    ),
    "accumulate.cannot_split": Words("{module} cannot be called in parts: {why}", "{module} 无法分段调用：{why}"),
    "accumulate.failed": Words("{module} failed in parts ({error})", "{module} 分段调用失败（{error}）"),
    "accumulate.other_form": Words("its result has another form in parts", "分段后它的结果形式不同"),
    "accumulate.depends_on_batch": Words(
        "its result for a sample depends on the others in the batch",
        "它对一个样本的结果取决于批次中的其他样本",
    ),
    "accumulate.whole_count": Words(
        "it returns a value for the whole batch, such as a count", "它返回整个批次的值，例如计数"
    ),
    "accumulate.changed": Words("its arguments are changed in place", "它的参数被原地修改"),
    "checkpointing.by_script": Words("is checkpointed by the script", "已由脚本做了激活检查点"),
    "checkpointing.copies": Words(
        "{module} makes copies or pieces of the model for every call",
        "{module} 每次调用都会复制或切分模型",
    ),
    "checkpointing.no_blocks": Words(
        "the model has no repeated blocks: no two children of one class in a list or sequence",
        "模型没有重复的块：列表或序列中没有两个同类的子模块",
    ),
    "checkpointing.cannot_rerun": Words(
        "{block} cannot be run again in backward: it {why}",
        "{block} 无法在反向传播中重新运行：它{why}",
    ),
    "checkpointing.not_plain": Words("is given or returns {what}", "得到或返回{what}"),
    "checkpointing.try_failed": Words("could not be tried out ({error})", "试运行失败（{error}）"),
    "checkpointing.draws_on_host": Words("draws random numbers on the host", "在主机上抽取随机数"),
    "checkpointing.leaves_change": Words("leaves something behind: {changed}", "留下了改动：{changed}"),
    "checkpointing.changes_arguments": Words("changes its arguments or buffers in place", "原地修改参数或缓冲区"),
    "checkpointing.input_changed": Words(
        "{block} cannot be run again in backward: the model changes in place what it has given it",
        "{block} 无法在反向传播中重新运行：模型原地修改了传给它的内容",
    ),
    "checkpointing.input_changed_wrong": Words(
        "{block} cannot be run again in backward: the model changes in place what it has given it; this step's "
        "gradients may be wrong",
        "{block} 无法在反向传播中重新运行：模型原地修改了传给它的内容；这一步的梯度可能有误",
    ),
    "memory.not_short": Words(
        "it saves memory and costs time; memory was not seen to run out", "它省内存但费时间；没有看到内存不足"
    ),
    "memory.allocator_retries": Words(
        "the allocator runs out of memory and starts over", "分配器内存不足，需要重新分配"
    ),
    "memory_keep.not_needed": Words(
        "nothing is computed again for which there is memory", "没有因省内存而重新计算、内存却放得下的部分"
    ),
    "memory_keep.kept": Words(
        "{kept} of {calls} calls a step, about {mib:.3g} MiB",
        "每步 {calls} 次调用中的 {kept} 次，约 {mib:.3g} MiB",
    ),
    "memory_keep.compiled": Words(
        "the script compiles, and the compiler decides itself what to keep",
        "脚本会编译，保留什么由编译器决定",
    ),
    "memory_keep.ranks": Words(
        "several processes train, and might not agree on what fits", "由多个进程训练，对能放下多少可能意见不一"
    ),
    "memory_keep.nothing_kept": Words(
        "no part could be kept: each has rules of its own, or gets no gradient",
        "没有可保留的部分：各有自己的规则，或没有梯度",
    ),
    "memory_keep.no_room": Words(
        "it would take {needed_gib:.3g} GiB, and {free_gib:.3g} are free",
        "需要 {needed_gib:.3g} GiB，空闲 {free_gib:.3g} GiB",
    ),
    "memory_keep.modules_unknown": Words(
        "it cannot be seen which modules a part runs, and so whether running it twice moves a buffer",
        "看不到一个部分运行了哪些模块，因而不知道运行两次是否会改变缓冲区",
    ),
    "memory_keep.changes_buffer": Words(
        "a part changes a buffer of its modules each time it is run, and is run twice now",
        "某个部分每次运行都会改变其模块的缓冲区，而现在它运行两次",
    ),
    "memory_keep.not_used": Words(
        "the script computes nothing again: torch.utils.checkpoint was not called",
        "脚本没有重新计算：没有调用 torch.utils.checkpoint",
    ),
    "memory_keep.short": Words("memory became short", "内存变得紧张"),
}

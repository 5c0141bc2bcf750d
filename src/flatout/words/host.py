"""Problems of the host: launches, Python, the optimizer (HO4xx)."""

from __future__ import annotations

from .render import ProblemWords, Words, titles

PROBLEMS = {
    "HO401": ProblemWords(
        Words("Launch-bound: the GPU waits for kernel launches", "受限于发射：GPU 在等主机发射 kernel"),
        "一步的前向和反向由大量很小的 kernel 组成，主机发射它们比设备执行它们还慢，两个 kernel 之间设备的队列是空的。",
        "减少发射次数：`torch.compile(model)` 融合小操作，"
        '形状固定时用 `mode="reduce-overhead"` 以 CUDA graph 整段重放；优化器用 `fused=True`；增大批次，'
        "让每次发射做更多的事。",
    ),
    "HO402": ProblemWords(
        Words("Python loop over elements in the training step", "训练步里用 Python 循环逐个处理元素"),
        "训练步里有 `for` 循环逐个处理元素、样本或参数：逐格绘制目标、逐样本累加损失、逐参数统计。"
        "每一轮都单独发射几个极小的 kernel。",
        "一次表达全部元素：把 `for i in range(n): out[i] = f(x[i])` 改成 `out = f(x)`；"
        "网格用 `torch.arange` 加广播，分散写入用 `index_put_` 或 `scatter_`，参数用 `torch._foreach_*`；"
        "能随样本一起做好的放进数据集。",
    ),
    "HO403": ProblemWords(
        Words("The optimizer updates parameters one by one", "优化器逐个更新参数"),
        "设了 `foreach=False`，或每个参数一个优化器，或在 GPU 上能融合却没有融合。"
        "更新一个张量就是十几个极小的 kernel，每步要发射几千次。",
        "所有参数用一个优化器，去掉 `foreach=False`：`torch.optim.AdamW(model.parameters(), lr=lr, fused=True)`；"
        "不同的学习率用同一个优化器的参数组。",
    ),
    "HO404": ProblemWords(
        Words("gc.collect() or empty_cache() in every step", "每一步都做垃圾回收或清空缓存"),
        "循环里每步调用 `gc.collect()` 或 `torch.cuda.empty_cache()`，或者存活的 Python 对象太多，"
        "垃圾回收自身就很慢。`empty_cache` 会等设备、把显存还给驱动，下一步又重新申请。",
        "把调用移出循环，或每个 epoch 只做一次；针对垃圾回收，在循环之前做一次 `gc.collect(); gc.freeze()`。",
    ),
    "HO405": ProblemWords(
        Words("Autograd anomaly detection is on", "autograd 的异常检测开着"),
        "`torch.autograd.set_detect_anomaly(True)` 或框架的 `detect_anomaly=True` 在查完 NaN 之后没有关掉："
        "前向的每个操作都记录 Python 调用栈，反向的每个梯度都检查 NaN，每次都要等设备。",
        "删掉这个调用，或放到调试开关后面。",
    ),
    "HO406": ProblemWords(
        Words("A profiler records every step", "profiler 在记录每一步"),
        "训练循环在 `torch.profiler.profile` 或 `torch.autograd.profiler.profile` 里运行，却没有 schedule："
        "每个操作都由发射线程记录下来，并一直占着内存。",
        "去掉它，或只记录几步："
        "`profile(schedule=torch.profiler.schedule(wait=10, warmup=2, active=5, repeat=1))`，"
        "循环里调用 `prof.step()`。",
    ),
    "HO407": ProblemWords(
        Words("torch.compile recompiles or breaks the graph", "torch.compile 反复重新编译或断图"),
        "`torch.compile` 遇到没见过的形状、类型或 Python 值，在训练中途重新编译；或遇到无法跟踪的代码（print、"
        "`.item()`、库调用），在那里把计算图断开。",
        "保持形状一致（`drop_last=True`、只填充到少数几种长度）或用 `torch.compile(model, dynamic=True)`；"
        "把 print 和 `.item()` 移出 `forward`。`TORCH_LOGS=recompiles,graph_breaks` 会列出每一处及原因。",
    ),
    "HO408": ProblemWords(
        Words("Constants are rebuilt in every step", "每一步都重新构造同样的常量"),
        "训练步里一次次生成结果不变的张量：滤波核、窗函数、坐标网格、均值和方差、类别权重，"
        "往往还要 `.to(device)`；Python 逐个元素地构造，拷贝又要排队等设备。",
        '只构造一次：模块里用 `self.register_buffer("window", make_window(), persistent=False)`，'
        "函数用 `functools.cache`；便宜的直接在设备上生成，如 `torch.arange(n, device=x.device)`。",
    ),
    "HO409": ProblemWords(
        Words("The optimizer is not fused", "优化器没有融合"),
        "GPU 训练里使用 torch 的 Adam、AdamW 或 SGD，但没有 `fused=True`。"
        "默认实现要分十几轮 kernel 更新全部参数，每轮都要读写一遍并由主机发射。",
        "使用 `torch.optim.AdamW(model.parameters(), lr=lr, fused=True)`。",
    ),
    "HO410": ProblemWords(
        Words("Gradients are zeroed instead of set to None", "梯度被写成零而不是丢弃"),
        "使用 `zero_grad(set_to_none=False)`，或循环对每个参数调用 `p.grad.zero_()`：先给每个梯度写零，"
        "反向时又要读出来再累加。",
        "使用 `optimizer.zero_grad()`：它直接丢弃梯度，反向时写入新的。",
    ),
    "HO411": ProblemWords(
        Words("Other work of the script in the training step", "训练步里有脚本的其他工作"),
        "在拿到批次和优化器更新之间，脚本做了一些既不属于模型、也不属于反向的事：numpy 指标、解析、排序、拷贝、绘图、"
        "Python 记账。",
        "把它移出训练步：每一百步做一次；结果不变就在循环之前做一次；只取决于样本就放进数据集；训练不需要结果就放到"
        "单独的线程或进程；或者对整个批次做一次运算。",
    ),
    "HO412": ProblemWords(
        Words("Time in the step that no known problem explains", "训练步里有一段时间没有已知问题能解释"),
        "结论指出了限制训练步的部分：拷贝、等待设备、停顿或主机，但没有发现任何已知的问题。时间是测到的，原因没有认出来。",
        "从给出的那一行入手。拷贝：次数少、块大、用固定内存、非阻塞。等待：每一百步读一次结果。停顿：次数少、数据少。"
        "主机：每步少执行 Python。",
    ),
    "HO414": ProblemWords(
        Words("Another thread holds the Python interpreter", "另一个线程占着 Python 解释器"),
        "训练线程之外还有一个线程经常在运行 Python：轮询队列、解码图片、计算指标或写日志。一个进程里同一时刻"
        "只有一个线程能运行 Python，训练线程每次从运算返回都要等它交出解释器。",
        "让这个线程等待而不是轮询（用 `queue.get()` 而不是 `get_nowait()`，用 `Event.wait()`），把工作放到单独的"
        "进程或会释放解释器的原生代码里，或减少次数。",
    ),
    "HO415": ProblemWords(
        Words("Work that takes longer with every step", "越到后面越慢的工作"),
        "训练步里有脚本的工作每次都处理到目前为止的全部内容：对本轮所有的预测计算指标、拼接越来越长的列表、"
        "每轮又注册一次的 hook、整段历史的平均值。第 n 步的耗时与 n 成正比，整个训练的耗时与 n 的平方成正比。",
        "每步只加入新的部分：累计和与计数、增量的混淆矩阵、固定长度的 `deque`；不再需要的列表和 hook 要清空或移除"
        "（`handle.remove()`）；或者只在一轮结束时算一次。",
    ),
}
TABLE = titles(PROBLEMS) | {
    # HO401
    "ho401.cause": Words(
        "the host launches work for {passes_ms:.3g} of each {step_ms:.3g} ms step, the GPU needs {work_ms:.3g} ms for"
        " it",
        "每步 {step_ms:.3g} ms 中主机花 {passes_ms:.3g} ms 发射，设备执行只需 {work_ms:.3g} ms",
    ),
    "ho401.change": Words(
        "model = torch.compile(model); without compiling, graphs.model where shapes stay the same",
        "model = torch.compile(model)；不编译的话，形状固定时用 graphs.model",
    ),
    # HO402
    "ho402.elements": Words("elements", "元素"),
    "ho402.samples": Words("samples", "样本"),
    "ho402.parameters": Words("parameters", "参数"),
    "ho402.modules": Words("small modules", "小模块"),
    "ho402.cause": Words(
        "a Python loop over {kind} in {function}, {line}, takes {loop_ms:.3g} of each {step_ms:.3g} ms step",
        "{function}（{line}）里逐个处理{kind}的 Python 循环占每步 {step_ms:.3g} ms 中的 {loop_ms:.3g} ms",
    ),
    "ho402.change": Words(
        "replace the loop in lines {first}-{last} by tensor operations over all {kind}, or compute its result in the"
        " dataset",
        "把第 {first}-{last} 行的循环换成对全部{kind}的张量运算，或在数据集里做好它的结果",
    ),
    "ho402.source_cause": Words(
        "nested loops write one element at a time in {step}: each write is a launch of its own",
        "嵌套循环在{step}逐个写元素：每次写入都是一次单独的发射",
    ),
    "ho402.source_change": Words(
        "compute all elements at once: torch.arange and broadcasting, index_put_, scatter_",
        "一次算出全部元素：torch.arange 加广播、index_put_、scatter_",
    ),
    # HO403
    "ho403.cause_many": Words(
        "{optimizers} optimizers of {parameters} parameter(s) each take {phase_ms:.3g} of each {step_ms:.3g} ms step",
        "{optimizers} 个优化器各管 {parameters} 个参数，共占每步 {step_ms:.3g} ms 中的 {phase_ms:.3g} ms",
    ),
    "ho403.cause": Words(
        "{optimizer} updates {parameters} parameters {way}, which takes {phase_ms:.3g} of each {step_ms:.3g} ms step",
        "{optimizer} {way}更新 {parameters} 个参数，占每步 {step_ms:.3g} ms 中的 {phase_ms:.3g} ms",
    ),
    "ho403.one_by_one": Words("one by one", "逐个"),
    "ho403.in_rounds": Words("in several rounds of kernels", "分几轮 kernel "),
    "ho403.change_own": Words(
        "torch._foreach_* operations over all parameters at once, or the fused optimizer of torch.optim",
        "用 torch._foreach_* 一次处理全部参数，或用 torch.optim 的融合优化器",
    ),
    "ho403.change_many": Words("one {call} for all parameters", "全部参数用一个 {call}"),
    "ho403.change_foreach": Words("{optimizer}(...) without foreach=False", "{optimizer}(...)，去掉 foreach=False"),
    "ho403.source_cause_foreach": Words(
        "foreach=False makes {optimizer} launch its dozen operations for each parameter separately",
        "foreach=False 使 {optimizer} 对每个参数单独发射十几个操作",
    ),
    "ho403.source_cause": Words(
        "`{code}` is launched for each parameter separately, {when}", "`{code}` {when}对每个参数单独发射"
    ),
    "ho403.source_change_clip": Words(
        "one clip_grad_norm_(model.parameters(), ...) for all of them",
        "对全部参数只调用一次 clip_grad_norm_(model.parameters(), ...)",
    ),
    "ho403.source_change": Words(
        "torch._foreach_* operations over lists of all tensors, such as torch._foreach_lerp_(old, new, 0.01)",
        "对全部张量的列表用 torch._foreach_* 操作，例如 torch._foreach_lerp_(old, new, 0.01)",
    ),
    # HO404
    "ho404.collect": Words(
        "gc.collect() takes {gc_ms:.3g} of each {step_ms:.3g} ms step",
        "每步 {step_ms:.3g} ms 中调用 gc.collect 占 {gc_ms:.3g} ms",
    ),
    "ho404.collector": Words(
        "Python's garbage collector takes {gc_ms:.3g} of each {step_ms:.3g} ms step",
        "每步 {step_ms:.3g} ms 中 Python 的垃圾回收占 {gc_ms:.3g} ms",
    ),
    "ho404.empty_cache": Words(
        "torch.cuda.empty_cache takes {empty_ms:.3g} of each {step_ms:.3g} ms step",
        "每步 {step_ms:.3g} ms 中 torch.cuda.empty_cache 占 {empty_ms:.3g} ms",
    ),
    "ho404.both": Words(
        "garbage collection takes {gc_ms:.3g} and torch.cuda.empty_cache {empty_ms:.3g} of each {step_ms:.3g} ms step",
        "每步 {step_ms:.3g} ms 中，垃圾回收占 {gc_ms:.3g} ms，torch.cuda.empty_cache 占 {empty_ms:.3g} ms",
    ),
    "ho404.change_empty_cache": Words(
        "take torch.cuda.empty_cache() out of the loop", "把 torch.cuda.empty_cache() 移出循环"
    ),
    "ho404.change_collect": Words("take gc.collect() out of the loop", "把 gc.collect() 移出循环"),
    "ho404.change_freeze": Words(
        "gc.collect(); gc.freeze() once before the loop", "在循环之前做一次 gc.collect(); gc.freeze()"
    ),
    "ho404.source_cause_empty_cache": Words(
        "`{call}()` gives memory back to the driver, which is asked for it again, in {step}",
        "`{call}()` 在{step}把显存还给驱动，随后又重新申请",
    ),
    "ho404.source_cause_collect": Words(
        "`{call}()` looks at every live object, in {step}", "`{call}()` 在{step}遍历所有存活的对象"
    ),
    # HO405
    "ho405.cause": Words(
        "anomaly mode traces every operation and checks every gradient in {passes_ms:.3g} of each {step_ms:.3g} ms"
        " step",
        "异常检测在每步 {step_ms:.3g} ms 中的 {passes_ms:.3g} ms 里跟踪每个操作、检查每个梯度",
    ),
    "ho405.source_cause": Words(
        "every operation records a stack trace, and every gradient is checked for NaN, which waits for the GPU each"
        " time",
        "每个操作都记录调用栈，每个梯度都检查 NaN，每次检查都要等设备",
    ),
    "ho405.source_change": Words("delete it, or put it behind a debug flag", "删掉它，或放到调试开关后面"),
    "ho405.fix": Words("turn it off: False", "关掉：False"),
    # HO406
    "ho406.cause": Words(
        "all {steps} steps run inside a profiler without a schedule",
        "全部 {steps} 步都在没有 schedule 的 profiler 里运行",
    ),
    "ho406.change": Words(
        "remove it, or give it schedule=torch.profiler.schedule(wait=10, warmup=2, active=5, repeat=1)",
        "去掉它，或加上 schedule=torch.profiler.schedule(wait=10, warmup=2, active=5, repeat=1)",
    ),
    "ho406.source_cause": Words(
        "`{profiler}` records every operation of every step", "`{profiler}` 记录每一步的每个操作"
    ),
    "ho406.source_change": Words(
        "delete it, or record a few steps: schedule=schedule(wait=10, warmup=2, active=5, repeat=1)",
        "删掉它，或只记录几步：schedule=schedule(wait=10, warmup=2, active=5, repeat=1)",
    ),
    # HO407
    "ho407.cause_compile_time": Words(
        "{compilations} compilations in {steps} steps take {compile_ms:.3g} of each {step_ms:.3g} ms step",
        "{steps} 步中编译了 {compilations} 次，占每步 {step_ms:.3g} ms 中的 {compile_ms:.3g} ms",
    ),
    "ho407.cause_forward": Words(
        "{compilations} compilations in {steps} steps: forward takes {forward_ms:.3g} of each {step_ms:.3g} ms step",
        "{steps} 步中编译了 {compilations} 次：前向占每步 {step_ms:.3g} ms 中的 {forward_ms:.3g} ms",
    ),
    "ho407.cause_median": Words(
        "{compilations} compilations after the start: the mean step is {step_ms:.3g} ms, the median {median_ms:.3g} ms",
        "开始之后又编译了 {compilations} 次：一步平均 {step_ms:.3g} ms，中位数 {median_ms:.3g} ms",
    ),
    "ho407.change_recompiled": Words(
        "batches of the same shape, changing numbers as tensors, or torch.compile(model, dynamic=True)",
        "批次保持同一形状，会变的数用张量传入，或用 torch.compile(model, dynamic=True)",
    ),
    "ho407.cause_breaks": Words(
        "{breaks} graph breaks leave the compiled model in pieces, and the GPU waits {idle_ms:.3g} of each"
        " {step_ms:.3g} ms step for launches",
        "{breaks} 处断图把编译后的模型切成碎块，设备每步 {step_ms:.3g} ms 中有 {idle_ms:.3g} ms 在等发射",
    ),
    "ho407.change_breaks": Words("fix what TORCH_LOGS=graph_breaks names", "修改 TORCH_LOGS=graph_breaks 列出的各处"),
    "ho407.source_cause": Words(
        "`{code}` is a graph break in the compiled {function}", "`{code}` 使编译后的 {function} 断图"
    ),
    "ho407.source_change": Words(
        "take it out of what is compiled, or put it in a function with @torch.compiler.disable",
        "把它移出被编译的代码，或放进带 @torch.compiler.disable 的函数",
    ),
    # HO408
    "ho408.cause": Words(
        "lines that depend on literals and settings alone take {ms:.3g} of each {step_ms:.3g} ms step to make the same"
        " tensors again, first {line}",
        "只依赖字面量和设置的代码行每步 {step_ms:.3g} ms 中花 {ms:.3g} ms 重新生成同样的张量，首先是 {line}",
    ),
    "ho408.change": Words(
        "build them once, on the GPU (register_buffer, or functools.cache on the function): {lines}",
        "在设备上只构造一次（register_buffer，或给函数加 functools.cache）：{lines}",
    ),
    "ho408.source_cause_copied": Words(
        "`{code}` is the same each time, and is copied to the GPU again in {step}",
        "`{code}` 每次都一样，却在{step}重新拷贝到设备",
    ),
    "ho408.source_cause_computed": Words(
        "`{code}` is the same each time, and is computed again in {step}", "`{code}` 每次都一样，却在{step}重新计算"
    ),
    "ho408.source_cause_sizes": Words(
        "`{code}` is made on the host and copied to the GPU in {step}", "`{code}` 在主机上生成，并在{step}拷贝到设备"
    ),
    "ho408.source_change_sizes": Words(
        "make it on the GPU: device=... instead of a copy", "直接在设备上生成：用 device=... 代替拷贝"
    ),
    "ho408.source_change_number": Words(
        "torch.full((), value, device=...) is filled on the GPU", "torch.full((), value, device=...) 直接在设备上填充"
    ),
    "ho408.source_change": Words(
        "build it once: register_buffer in __init__, or functools.cache on the function that makes it",
        "只构造一次：在 __init__ 里 register_buffer，或给生成它的函数加 functools.cache",
    ),
    "ho408.fix": Words("fill it on the GPU", "直接在设备上填充"),
    # HO409
    "ho409.source_cause": Words(
        "{optimizer} updates all parameters in several rounds of kernels; fused, it takes one",
        "{optimizer} 分几轮 kernel 更新全部参数；融合后只需一轮",
    ),
    # HO410
    "ho410.source_cause": Words(
        "zeros are written to every gradient, to be added to, in {step}", "在{step}先给每个梯度写零，再往上累加"
    ),
    "ho410.source_change": Words(
        "zero_grad(), which drops the gradients (set_to_none=True)",
        "用 zero_grad()，它直接丢弃梯度（set_to_none=True）",
    ),
    "ho410.source_cause_loop": Words(
        "each gradient is filled with zeros separately, in {step}", "在{step}逐个把梯度填零"
    ),
    "ho410.source_change_loop": Words(
        "optimizer.zero_grad(), or p.grad = None in the loop", "用 optimizer.zero_grad()，或在循环里写 p.grad = None"
    ),
    "ho410.fix": Words("drop the gradients", "直接丢弃梯度"),
    # HO412
    "ho412.cause": Words(
        "{what} take {ms:.3g} of each {step_ms:.3g} ms step", "{what}在每步 {step_ms:.3g} ms 中占 {ms:.3g} ms"
    ),
    "ho412.cause_line": Words(
        "{what} take {ms:.3g} of each {step_ms:.3g} ms step, most of it at {line}",
        "{what}在每步 {step_ms:.3g} ms 中占 {ms:.3g} ms，大部分在 {line}",
    ),
    "ho412.transfer": Words("copies to the device", "到设备的拷贝"),
    "ho412.sync": Words("waits for the device", "对设备的等待"),
    "ho412.host": Words("other lines of the script", "脚本的其他行"),
    "ho412.cadence": Words("pauses", "停顿"),
    "ho412.change_transfer": Words(
        "copy less often and more at a time, from pinned memory, with non_blocking=True",
        "减少拷贝次数，每次多拷一些，用固定内存和 non_blocking=True",
    ),
    "ho412.change_sync": Words("read results of the device every 100 steps", "每 100 步读一次设备的结果"),
    "ho412.change_host": Words("do less in each step, or the same less often", "每步少做一些，或减少次数"),
    "ho412.change_cadence": Words("pause less often, or for less", "减少停顿的次数或长度"),
    # HO411
    "ho414.cause": Words(
        "the training waits for the interpreter for {wait_ms:.3g} of each {step_ms:.3g} ms step: thread {thread} runs"
        " Python in {function} ({line}), {cores:.0%} of a core",
        "训练在每步 {step_ms:.3g} ms 中等解释器 {wait_ms:.3g} ms：线程 {thread} 在 {function}（{line}）里运行 Python，"
        "占一个核的 {cores:.0%}",
    ),
    "ho414.change": Words(
        "let the thread wait instead of polling, or do its work in a process of its own",
        "让该线程等待而不是轮询，或把它的工作放到单独的进程里",
    ),
    "ho415.cause_run": Words(
        "the script's own work takes {first_ms:.3g} ms in the first step and {last_ms:.3g} ms after {steps:.0f} steps,"
        " and does not stop growing; most of that is in {function} ({line})",
        "脚本自己的工作在第一步占 {first_ms:.3g} ms，{steps:.0f} 步之后占 {last_ms:.3g} ms，而且还在增加；"
        "大部分在 {function}（{line}）",
    ),
    "ho415.cause_epoch": Words(
        "the script's own work takes {first_ms:.3g} ms at the start of an epoch and {last_ms:.3g} ms after {steps:.0f}"
        " steps of it; most of that is in {function} ({line})",
        "脚本自己的工作在每轮开始时占 {first_ms:.3g} ms，该轮 {steps:.0f} 步之后占 {last_ms:.3g} ms；"
        "大部分在 {function}（{line}）",
    ),
    "ho415.change": Words(
        "add only what is new in each step (running sums and counts), and clear or remove what is no longer needed",
        "每步只加入新的部分（累计和与计数），不再需要的就清空或移除",
    ),
    "ho411.cause_python": Words(
        "Python in {function} ({line}) takes {work_ms:.3g} of each {step_ms:.3g} ms step, outside of the model",
        "{function}（{line}）里的 Python 代码在每步 {step_ms:.3g} ms 中占 {work_ms:.3g} ms，不属于模型",
    ),
    "ho411.cause_native": Words(
        "{function} ({line}) computes for {work_ms:.3g} of each {step_ms:.3g} ms step, outside of the model",
        "{function}（{line}）在每步 {step_ms:.3g} ms 中计算 {work_ms:.3g} ms，不属于模型",
    ),
    "ho411.change_python": Words(
        "do it less often, before the loop or in the dataset, or as one operation on the whole batch",
        "减少次数，放到循环之前或数据集里，或对整个批次做一次运算",
    ),
    "ho411.change_native": Words(
        "do it less often, before the loop, in the dataset's workers or in a thread of its own",
        "减少次数，放到循环之前、数据集的 worker 里或单独的线程里",
    ),
}

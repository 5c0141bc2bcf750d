"""Problems of the host, in Chinese."""

from __future__ import annotations

from flatout.problems.chinese.words import Words

HOST = {
    "HO401": Words(
        "GPU 在等主机发射 kernel",
        "一步的前向和反向由大量很小的 kernel 组成，主机发射它们比设备执行它们还慢，两个 kernel 之间设备的队列是空的。",
        "减少发射次数：`torch.compile(model)` 融合小操作，"
        '形状固定时用 `mode="reduce-overhead"` 以 CUDA graph 整段重放；优化器用 `fused=True`；增大批次，'
        "让每次发射做更多的事。",
    ),
    "HO402": Words(
        "Python 逐个处理元素",
        "训练步里有 `for` 循环逐个处理元素、样本或参数：逐格绘制目标、逐样本累加损失、逐参数统计。"
        "每一轮都单独发射几个极小的 kernel。",
        "一次表达全部元素：把 `for i in range(n): out[i] = f(x[i])` 改成 `out = f(x)`；"
        "网格用 `torch.arange` 加广播，分散写入用 `index_put_` 或 `scatter_`，参数用 `torch._foreach_*`；"
        "能随样本一起做好的放进数据集。",
    ),
    "HO403": Words(
        "优化器逐个更新参数",
        "设了 `foreach=False`，或每个参数一个优化器，或在 GPU 上能融合却没有融合。"
        "更新一个张量就是十几个极小的 kernel，每步要发射几千次。",
        "所有参数用一个优化器，去掉 `foreach=False`：`torch.optim.AdamW(model.parameters(), lr=lr, fused=True)`；"
        "不同的学习率用同一个优化器的参数组。",
    ),
    "HO404": Words(
        "每一步都在整理内存",
        "循环里每步调用 `gc.collect()` 或 `torch.cuda.empty_cache()`，或者存活的 Python 对象太多，"
        "垃圾回收自身就很慢。`empty_cache` 会等设备、把显存还给驱动，下一步又重新申请。",
        "把调用移出循环，或每个 epoch 只做一次；针对垃圾回收，在循环之前做一次 `gc.collect(); gc.freeze()`。",
    ),
    "HO405": Words(
        "autograd 的异常检测开着",
        "`torch.autograd.set_detect_anomaly(True)` 或框架的 `detect_anomaly=True` 在查完 NaN 之后没有关掉："
        "前向的每个操作都记录 Python 调用栈，反向的每个梯度都检查 NaN，每次都要等设备。",
        "删掉这个调用，或放到调试开关后面。",
    ),
    "HO406": Words(
        "profiler 在记录每一步",
        "训练循环在 `torch.profiler.profile` 或 `torch.autograd.profiler.profile` 里运行，却没有 schedule："
        "每个操作都由发射线程记录下来，并一直占着内存。",
        "去掉它，或只记录几步："
        "`profile(schedule=torch.profiler.schedule(wait=10, warmup=2, active=5, repeat=1))`，"
        "循环里调用 `prof.step()`。",
    ),
    "HO407": Words(
        "编译后的模型反复重新编译，或被切成碎块",
        "`torch.compile` 遇到没见过的形状、类型或 Python 值，在训练中途重新编译；或遇到无法跟踪的代码（print、"
        "`.item()`、库调用），在那里把计算图断开。",
        "保持形状一致（`drop_last=True`、只填充到少数几种长度）或用 `torch.compile(model, dynamic=True)`；"
        "把 print 和 `.item()` 移出 `forward`。`TORCH_LOGS=recompiles,graph_breaks` 会列出每一处及原因。",
    ),
    "HO408": Words(
        "每一步都重新构造同样的常量",
        "训练步里一次次生成结果不变的张量：滤波核、窗函数、坐标网格、均值和方差、类别权重，"
        "往往还要 `.to(device)`；Python 逐个元素地构造，拷贝又要排队等设备。",
        '只构造一次：模块里用 `self.register_buffer("window", make_window(), persistent=False)`，'
        "函数用 `functools.cache`；便宜的直接在设备上生成，如 `torch.arange(n, device=x.device)`。",
    ),
    "HO409": Words(
        "优化器本可以是一个 kernel",
        "GPU 训练里使用 torch 的 Adam、AdamW 或 SGD，但没有 `fused=True`。"
        "默认实现要分十几轮 kernel 更新全部参数，每轮都要读写一遍并由主机发射。",
        "使用 `torch.optim.AdamW(model.parameters(), lr=lr, fused=True)`。",
    ),
    "HO410": Words(
        "梯度被写成零而不是丢弃",
        "使用 `zero_grad(set_to_none=False)`，或循环对每个参数调用 `p.grad.zero_()`：先给每个梯度写零，"
        "反向时又要读出来再累加。",
        "使用 `optimizer.zero_grad()`：它直接丢弃梯度，反向时写入新的。",
    ),
}

"""What detectors of the host say of a run, in Chinese."""

from __future__ import annotations

SAID_HOST = {
    # HO401
    "the host launches work for {n} of each {n} ms step, the device needs {n} ms for it": (
        "每步 {1} ms 中主机花 {0} ms 发射，设备执行只需 {2} ms"
    ),
    "model = torch.compile(model); without compiling, graphs.model where shapes stay the same": (
        "model = torch.compile(model)；不编译的话，形状固定时用 graphs.model"
    ),
    "launching takes {n} ms, the device computes {n} ms: fusion removes half of what is between, a graph more": (
        "发射占 {0} ms，设备计算 {1} ms：融合可去掉两者之差的一半，CUDA graph 去掉更多"
    ),
    # HO402
    "a Python loop over {} in {}, {}, takes {n} of each {n} ms step": (
        "{1}（{2}）里逐个处理{0}的 Python 循环占每步 {4} ms 中的 {3} ms"
    ),
    "elements": "元素",
    "samples": "样本",
    "parameters": "参数",
    "replace the loop in lines {n}-{n} by tensor operations over all {}, or make its result in the dataset": (
        "把第 {0}-{1} 行的循环换成对全部{2}的张量运算，或在数据集里做好它的结果"
    ),
    "the loop takes {n} of {n} ms and {n} ms of backward: {n} ms go": (
        "循环占 {1} ms 中的 {0} ms，另占反向 {2} ms：可省去 {3} ms"
    ),
    # HO403
    "{n} optimizers of {n} parameter{} take {n} of each {n} ms step": (
        "{0} 个优化器{2} {1} 个参数，共占每步 {4} ms 中的 {3} ms"
    ),
    " each": "各管",
    "s each": "各管",
    "{} updates {n} parameters {}, which takes {n} of each {n} ms step": (
        "{0} {2}更新 {1} 个参数，占每步 {4} ms 中的 {3} ms"
    ),
    "one by one": "逐个",
    "in several rounds": "分几轮",
    "torch._foreach_* operations over all parameters at once, or the fused optimizer of torch.optim": (
        "用 torch._foreach_* 一次处理全部参数，或用 torch.optim 的融合优化器"
    ),
    "one {} for all parameters": "全部参数用一个 {0}",
    "{}(...) without foreach=False": "{0}(...)，去掉 foreach=False",
    "of {n} ms in the optimizer, and what goes with it, {n} go": "优化器的 {0} ms 连同附带的开销，可省去 {1} ms",
    # HO404
    "a call of gc.collect{}{n} of each {n} ms step{}torch.cuda.empty_cache takes {n} of each {n} ms step": (
        "每步 {2} ms 中调用 gc.collect {0} {1} ms{3}每步 {5} ms 中 torch.cuda.empty_cache 占 {4} ms"
    ),
    "Python's collector{}{n} of each {n} ms step{}torch.cuda.empty_cache takes {n} of each {n} ms step": (
        "每步 {2} ms 中 Python 的垃圾回收{0} {1} ms{3}每步 {5} ms 中 torch.cuda.empty_cache 占 {4} ms"
    ),
    "a call of gc.collect{}{n} of each {n} ms step": "每步 {2} ms 中调用 gc.collect {0} {1} ms",
    "Python's collector{}{n} of each {n} ms step": "每步 {2} ms 中 Python 的垃圾回收{0} {1} ms",
    " takes ": "占",
    " and ": "；",
    "torch.cuda.empty_cache takes {n} of each {n} ms step": "每步 {1} ms 中 torch.cuda.empty_cache 占 {0} ms",
    "tidying up takes {n} of each {n} ms step": "每步 {1} ms 中整理内存占 {0} ms",
    "take torch.cuda.empty_cache() out of the loop": "把 torch.cuda.empty_cache() 移出循环",
    "take gc.collect() out of the loop": "把 gc.collect() 移出循环",
    "gc.collect(); gc.freeze() once before the loop": "在循环之前做一次 gc.collect(); gc.freeze()",
    "a step of {n} ms has {n} ms of collecting and {n} ms of emptying the cache": (
        "一步 {0} ms 中，垃圾回收占 {1} ms，清空缓存占 {2} ms"
    ),
    "a step of {n} ms has {n} ms of collecting and {n} ms of emptying the cache{}": (
        "一步 {0} ms 中，垃圾回收占 {1} ms，清空缓存占 {2} ms{3}"
    ),
    ", which must then be filled again": "，之后缓存又要重新填满",
    # HO405
    "anomaly mode traces every operation and checks every gradient in {n} of each {n} ms step": (
        "异常检测在每步 {1} ms 中的 {0} ms 里跟踪每个操作、检查每个梯度"
    ),
    "it takes {} to {} of the {n} ms of forward and backward, by their operations": (
        "它占前向和反向 {2} ms 的 {0} 到 {1}，视其中的操作而定"
    ),
    # HO406
    "all {n} steps run inside a profiler without a schedule": "全部 {0} 步都在没有 schedule 的 profiler 里运行",
    "remove it, or give it schedule=torch.profiler.schedule(wait=10, warmup=2, active=5, repeat=1)": (
        "去掉它，或加上 schedule=torch.profiler.schedule(wait=10, warmup=2, active=5, repeat=1)"
    ),
    # HO407
    "{n} compilations in {n} steps take {n} of each {n} ms step": ("{1} 步中编译了 {0} 次，占每步 {3} ms 中的 {2} ms"),
    "{n} compilations in {n} steps: forward takes {n} of each {n} ms step": (
        "{1} 步中编译了 {0} 次：前向占每步 {3} ms 中的 {2} ms"
    ),
    "{n} compilations after the start: the mean step is {n} ms, the median {n} ms": (
        "开始之后又编译了 {0} 次：一步平均 {1} ms，中位数 {2} ms"
    ),
    "batches of the same shape, changing numbers as tensors, or torch.compile(model, dynamic=True)": (
        "批次保持同一形状，会变的数用张量传入，或用 torch.compile(model, dynamic=True)"
    ),
    "without compiling, a step of {n} ms takes {n} ms": "不再编译，一步从 {0} ms 降到 {1} ms",
    "{n} graph breaks leave the compiled model in pieces, and the device waits {n} of each {n} ms step for launches": (
        "{0} 处断图把编译后的模型切成碎块，设备每步 {2} ms 中有 {1} ms 在等发射"
    ),
    "mend what TORCH_LOGS=graph_breaks names": "修改 TORCH_LOGS=graph_breaks 列出的各处",
    "half of the {n} ms go in which the device waits for launches": "设备等发射的 {0} ms 可省去一半",
    # HO408
    "lines that hang on literals and settings alone take {n} of each {n} ms step to make the same tensors again, "
    "first {}": "只依赖字面量和设置的代码行每步 {1} ms 中花 {0} ms 重新生成同样的张量，首先是 {2}",
    "build them once, on the device (register_buffer, or functools.cache on the function): {}": (
        "在设备上只构造一次（register_buffer，或给函数加 functools.cache）：{0}"
    ),
    "building the constants takes {n} ms and copying them {n} of {n} ms a step": (
        "每步 {2} ms 中，构造常量占 {0} ms，拷贝常量占 {1} ms"
    ),
}

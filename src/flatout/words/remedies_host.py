"""Remedies of the host, checkpoints, evaluation and kept results: why one is or is not used, and what it did."""

from __future__ import annotations

from .render import Words

TABLE: dict[str, Words] = {
    "autograd.was_off": Words("anomaly mode was off", "异常检测没有开启"),
    "cadence_eval.short": Words("evaluation takes no time worth mentioning", "评估所占时间可以忽略"),
    "cadence_eval.unreadable": Words("does something that cannot be read", "的代码无法读取"),
    "cadence_eval.other_name": Words("calls it by another name", "用别的名称调用它"),
    "cadence_eval.no_function": Words(
        "the evaluation is no function of its own: it stands in the loop that trains",
        "评估不是单独的函数，而是写在训练循环里",
    ),
    "cadence_eval.uses": Words("uses its result: {code}", "使用它的结果：{code}"),
    "cadence_eval.cannot_replace": Words(
        "{function} is called in a way that cannot be stood in for",
        "{function} 的调用方式无法替换",
    ),
    "cadence_eval.does_more": Words(
        "{function} does not only evaluate, it {effect}", "{function} 不只做评估：{effect}"
    ),
    "cadence_eval.result_used": Words(
        "the caller of {function} {use} (force = true to do it all the same)",
        "{function} 的调用者{use}（仍要这样做请设 force = true）",
    ),
    "cadence_eval.sets": Words(
        "{function} sets {target}, on which something may hang (force = true to do it all the same)",
        "{function} 设置了 {target}，可能有代码依赖它（仍要这样做请设 force = true）",
    ),
    "cadence_eval.not_found": Words("{function} cannot be found by its name", "无法按名称找到 {function}"),
    "cadence_eval.steps": Words("steps an optimizer or a schedule", "会更新优化器或学习率调度"),
    "cadence_eval.trains": Words("trains", "会训练"),
    "cadence_eval.saves": Words("saves", "会保存"),
    "cadence_logging.short": Words("logging takes no time worth mentioning", "记录日志所占时间可以忽略"),
    "throttle.waits": Words(
        "the training waits in it for somebody else, and uses nothing that it returns",
        "训练在其中等待别的进程，而且不使用它的返回值",
    ),
    "throttle.not_known": Words(
        "only you can say which function may be called less often", "只有你知道哪个函数可以少调用"
    ),
    "throttle.static_method": Words(
        "{function!r} is a static or class method: name the function that calls it",
        "{function!r} 是静态方法或类方法：请给出调用它的函数",
    ),
    "throttle.generator": Words(
        "{function!r} is a generator or a coroutine: what it returns can be used only once",
        "{function!r} 是生成器或协程：它的返回值只能用一次",
    ),
    "checkpoint.short": Words("writing checkpoints took {total_s:.3g} s in all", "写检查点总共用了 {total_s:.3g} 秒"),
    "checkpoint.none": Words("no checkpoint was written", "没有写过检查点"),
    "checkpoint.needs_linux": Words(
        "needs Linux, and an interpreter that can be started again",
        "需要 Linux，以及可以再次启动的解释器",
    ),
    "gc.short": Words("tidying up memory takes no time worth mentioning", "整理内存所占时间可以忽略"),
    "gc.memory_short": Words("the device's memory became short", "设备内存变得紧张"),
    "memo.computes_attributes": Words("a {kind} computes its attributes", "{kind} 的属性是计算出来的"),
    "memo.own_operator": Words("{kind}.{name} is a function of yours", "{kind}.{name} 是你自己的函数"),
    "memo.attr_function": Words("is a function of yours", "是你自己的函数"),
    "memo.attr_computed": Words("is computed", "是计算出来的"),
    "memo.attr_outer": Words("hangs on more than its object", "依赖对象以外的东西"),
    "memo.attribute": Words("{kind}.{name} {why}", "{kind}.{name} {why}"),
    "memo.attr_recursive": Words("hangs on itself", "依赖自身"),
    "memo.attr_impure": Words("does more than compute: {why}", "不只是计算：{why}"),
    "memo.attr_reads": Words("reads an attribute that {why}", "读取的某个属性{why}"),
    "memo.source_changed": Words(
        "the source of {function} cannot be read, or has changed since it was loaded",
        "{function} 的源码无法读取，或加载后已改变",
    ),
    "memo.not_python": Words("{function!s} is not written in Python", "{function!s} 不是用 Python 写的"),
    "memo.calls_impure": Words("it calls {function}, which {why}", "它调用 {function}，后者{why}"),
    "memo.may_write_argument": Words(
        "it calls {function} with {arguments} arguments by position: one may be written into",
        "它以 {arguments} 个位置参数调用 {function}：其中一个可能被写入",
    ),
    "memo.source_unreadable": Words("its source cannot be read", "它的源码无法读取"),
    "memo.wrapped": Words("{function} is wrapped in something else", "{function} 被别的东西包装"),
    "memo.missing": Words("it reads {name}, which is not there", "它读取 {name}，而它不存在"),
    "memo.no_plain_method": Words(
        "it calls self.{method}, which is no plain method of yours",
        "它调用 self.{method}，而那不是你的普通方法",
    ),
    "memo.calls": Words("it calls {function}", "它调用 {function}"),
    "memo.function_replaced": Words("{function} is another function than it was", "{function} 已换成另一个函数"),
    "memo.unbound": Words("it reads {name}, which is not there yet", "它读取 {name}，而它尚不存在"),
    "memo.unknown_content": Words("it is a {kind}, whose content cannot be told", "它是 {kind}，无法得知其内容"),
    "memo.result_has_gradients": Words("gradients flow through its result", "梯度会流经它的结果"),
    "memo.returns_subclass": Words("it returns a {kind} of its own kind", "它返回自定义的 {kind}"),
    "memo.result_is_view": Words("its result is a view of something larger", "它的结果是更大张量的视图"),
    "memo.too_deep": Words("its content goes too deep", "它的内容嵌套太深"),
    "memo.is_kind": Words("it is a {kind}", "它是 {kind}"),
    "memo.object_array": Words("it is an array of objects", "它是对象数组"),
    "memo.has_gradients": Words("gradients flow through it", "梯度会流经它"),
    "memo.tensor_layout": Words("it is a {layout} tensor on {device}", "它是位于 {device} 上、布局为 {layout} 的张量"),
    "memo.tensor_attributes": Words("it carries attributes of its own", "它带有自己的属性"),
    "memo.result_holds_argument": Words("its result holds one of its arguments", "它的结果含有它的某个参数"),
    "memo.result_shares_memory": Words(
        "its result shares memory with an argument, or a part of it with another part",
        "它的结果与参数共享内存，或结果的各部分之间共享内存",
    ),
    "memo.enum_attributes": Words("{member} carries attributes of its own", "{member} 带有自己的属性"),
    "memo.cannot_compare": Words("{name} cannot be compared: {why}", "{name} 无法比较：{why}"),
    "memo.returns_kind": Words("it returns a {kind}", "它返回 {kind}"),
    "memo.no_plain_function": Words("{function!r} is no plain function or method", "{function!r} 不是普通的函数或方法"),
    "memo.not_imported": Words("the script has not imported {module!r}", "脚本没有导入 {module!r}"),
    "memo.never_again": Words(
        "no arguments came again in two epochs of {batches} batches",
        "在各 {batches} 个批次的两个 epoch 中没有出现相同的参数",
    ),
    "memo.costs_more": Words(
        "looking up its arguments takes {own_s:.2f} s, and saves {saved_s:.2f} s",
        "查找参数用了 {own_s:.2f} 秒，只省下 {saved_s:.2f} 秒",
    ),
    "memo.draws": Words("it draws from {whose} random generator", "它从{whose}随机数生成器抽取"),
    "memo.other_result": Words("the same arguments gave another result", "相同的参数给出了不同的结果"),
    "memo.lookup_slow": Words(
        "looking up its arguments takes {lookup_ms:.2f} ms a call, the function itself {function_ms:.2f} ms",
        "每次调用查找参数用 {lookup_ms:.2f} ms，函数本身用 {function_ms:.2f} ms",
    ),
    "memo.changes_arguments": Words("it changes what it is given", "它会修改传入的参数"),
    "memo.full": Words(
        "the memory for its results is full, and no arguments came again", "存放结果的内存已满，而没有出现相同的参数"
    ),
    "memo.nothing_found": Words(
        "no function was seen to compute much that could be kept", "没有看到值得保留结果的函数"
    ),
    "memo.no_function_at": Words(
        "line {line} is in no function of its own that could be kept",
        "第 {line} 行不在可保留结果的函数中",
    ),
    "memo.worth": Words(
        "{cause}; it only computes, and the same samples come again", "{cause}；它只做计算，而且同样的样本会再次出现"
    ),
    "memo.no_method": Words(
        "it calls self.{method}, which is no method of its class", "它调用 self.{method}，而那不是所在类的方法"
    ),
    "memo.file_unreadable": Words("the source of {file} cannot be read here", "这里无法读取 {file} 的源码"),
    "memo.returns_nothing": Words("{function} returns nothing that could be kept", "{function} 没有可保留的返回值"),
    "memo.cannot_keep": Words("{function} cannot be kept: {why}", "{function} 的结果不能保留：{why}"),
    "memo.writes_global": Words("it writes a global name", "它写入全局名称"),
    "memo.writes_nonlocal": Words("it writes a name of the function around it", "它写入外层函数的名称"),
    "memo.is_generator": Words("it is a generator", "它是生成器"),
    "memo.awaits": Words("it waits for something", "它会等待某些东西"),
    "memo.defines_function": Words("it defines a function", "它定义了函数"),
    "memo.defines_class": Words("it defines a class", "它定义了类"),
    "memo.imports": Words("it imports something", "它导入了模块"),
    "memo.matches": Words("it matches patterns, which is not looked into", "它使用模式匹配，未作分析"),
    "memo.fault_draws": Words("draws random numbers", "会抽取随机数"),
    "memo.fault_unknown": Words("is not known to be pure", "不确定是否为纯函数"),
    "memo.at_line": Words("{why} ({function}, line {line})", "{why}（{function}，第 {line} 行）"),
    "memo.too_many_functions": Words("it calls more than {most} functions of yours", "它调用的你的函数超过 {most} 个"),
    "memo.rebinds_self": Words("it gives {name} another value", "它给 {name} 赋了别的值"),
    "memo.changes_in_place": Words(
        "it changes {name} in place, which it may not have made itself",
        "它原地修改 {name}，而那可能不是它自己创建的",
    ),
    "memo.changes_item": Words(
        "it changes {code} in place, which it may not have made", "它原地修改 {code}，而那可能不是它创建的"
    ),
    "memo.passes_self": Words("it hands {name} on as a whole", "它把 {name} 整个传出去"),
    "memo.reads_no_content": Words("it reads {code}, which is no content", "它读取 {code}，而那不是内容"),
    "memo.reads_private": Words("it reads {code}, which is private", "它读取 {code}，而那是私有的"),
    "memo.decorated": Words("@{decorator} may do more", "@{decorator} 可能做更多的事"),
    "memo.enters": Words("it enters {code}", "它进入 {code}"),
    "memo.calls_with": Words("it calls {function} with {argument}", "它以 {argument} 调用 {function}"),
    "memo.sets": Words("it sets {code}", "它设置 {code}"),
    "memo.calls_unknown": Words(
        "it calls {function}, and what that is cannot be told", "它调用 {function}，而无法得知那是什么"
    ),
    "memo.writes_into": Words(
        "it writes into {code}, which it has not made itself", "它写入 {code}，而那不是它自己创建的"
    ),
    "memo.calls_method": Words("it calls .{method}(), which {why}", "它调用 .{method}()，后者{why}"),
    "memo.calls_method_on": Words(
        "it calls .{method}() on {object}, which {why}",
        "它在 {object} 上调用 .{method}()，后者{why}",
    ),
    "memo.not_seen": Words(
        "its calls are recorded or rewritten in the first {steps} steps", "最初 {steps} 步中它的调用被录制或改写"
    ),
    "memo.not_called": Words("it was not called in the first {steps} steps", "最初 {steps} 步中它没有被调用"),
    "memo.stopped": Words("{function}: {why}", "{function}：{why}"),
    "memo.of_torch": Words("torch's", "torch 的"),
    "memo.of_gpu": Words("the GPU's", "GPU 的"),
    "memo.of_python": Words("Python's", "Python 的"),
    "memo.of_numpy": Words("numpy's", "numpy 的"),
}

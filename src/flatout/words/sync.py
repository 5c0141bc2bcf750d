"""Problems of waiting for the GPU (SY3xx)."""

from __future__ import annotations

from .render import ProblemWords, Words, titles

PROBLEMS = {
    "SY301": ProblemWords(
        Words("GPU sync in every step", "每一步都同步等待设备的结果"),
        "训练步里对设备张量调用 `.item()`、`.cpu()`、`.tolist()`、`float(loss)` 或 `if tensor:`。"
        "调用要等设备做完所有排队的工作才返回，下一步开始时设备的队列是空的。",
        "结果留在设备上，少读几次：把 `total += loss.item()` 改成 `total += loss.detach()`，"
        '每一百步再 `total.item()` 一次；用于日志时 `.to("cpu", non_blocking=True)`，晚一步再读。',
    ),
    "SY302": ProblemWords(
        Words("Hidden GPU sync", "隐式同步"),
        "`x[mask]`、`nonzero`、`masked_select`、`unique`、`repeat_interleave`，或用设备上的标量作大小或下标："
        "结果的形状只有设备知道，主机只能等。",
        "保持形状固定：把 `error[mask].mean()` 改成 `(error * mask).sum() / mask.sum()`，"
        "或用 `torch.where(mask, a, b)`；大小和下标取自主机（`len`、`shape`），不要取自张量。",
    ),
    "SY303": ProblemWords(
        Words("torch.cuda.synchronize() in the training step", "训练步里调用了 synchronize"),
        "训练步里有 `torch.cuda.synchronize()`，或 stream、event 的 `synchronize()`，多半是以前计时留下的："
        "主机等设备做完，设备再等主机发射下一步。",
        "删掉它。要给一步的各部分计时，用成对的 `torch.cuda.Event(enable_timing=True)` 记录，以后再读。",
    ),
    "SY304": ProblemWords(
        Words("One GPU sync per parameter", "每个参数同步一次"),
        "对参数或梯度循环，每个都读一次值：检查 NaN、求梯度范数、统计权重。每轮发射一两个极小的 kernel 再等它，"
        "几百个参数就是每步几百次往返。",
        "合并成一个结果：范数用 `torch.nn.utils.get_total_norm(grads)` 或 `torch._foreach_norm(grads)`，"
        "只读一次；NaN 用 `torch.isfinite(total_norm)`，每一百步读一次。",
    ),
    "SY305": ProblemWords(
        Words("Blocking call in the training step", "训练步里有阻塞的调用"),
        "训练循环里有会阻塞的调用：等查看器、套接字、子进程、人或时钟（`recv`、`accept`、`sleep`、`input`、"
        "网络请求、`psutil.cpu_percent(interval=...)`）；训练线程阻塞时什么都不发射。",
        "把它移出训练线程：查看器用非阻塞套接字轮询，每一百步应答一次，或者关掉；网络请求和子进程放到单独的线程；"
        "`sleep` 直接删掉。",
    ),
}
TABLE = titles(PROBLEMS) | {
    # SY301
    "sy301.cause": Words(
        "{count:.3g} calls a step wait {wait_ms:.3g} of {step_ms:.3g} ms for results of the GPU",
        "每步有 {count:.3g} 次调用等待设备的结果，占 {step_ms:.3g} ms 中的 {wait_ms:.3g} ms",
    ),
    "sy301.change": Words(
        "keep the results on the GPU (.detach()) and read them every 100 steps: {lines}",
        "结果留在设备上（.detach()），每 100 步读一次：{lines}",
    ),
    "sy301.source_cause_read": Words(
        "reading `{code}` waits for the GPU in {step}", "读取 `{code}` 在{step}都等待设备"
    ),
    "sy301.source_cause_copied": Words(
        "reading `{code}` waits for the GPU in {step}", "读取 `{code}` 在{step}都等待设备"
    ),
    "sy301.source_cause_written": Words(
        "writing `{code}` waits for the GPU in {step}", "输出 `{code}` 在{step}都等待设备"
    ),
    "sy301.source_cause_compared": Words(
        "comparing `{code}` waits for the GPU in {step}", "比较 `{code}` 在{step}都等待设备"
    ),
    "sy301.source_change_read": Words(
        "keep it on the GPU (.detach()) and read it every 100 steps, or after the loop",
        "让它留在设备上（.detach()），每 100 步读一次，或循环之后再读",
    ),
    "sy301.source_change_copied": Words(
        "keep it on the GPU until it is needed; or .to('cpu', non_blocking=True), read a step later",
        "用到之前留在设备上；或用 .to('cpu', non_blocking=True)，晚一步再读",
    ),
    "sy301.source_change_written": Words(
        "print or log every k-th step, from a value that stays on the GPU until then (.detach())",
        "每 k 步打印或记录一次，在此之前值留在设备上（.detach()）",
    ),
    "sy301.source_change_compared": Words(
        "decide on the GPU (torch.where), or look only every k-th step",
        "在设备上做判断（torch.where），或每 k 步才看一次",
    ),
    "sy301.fix": Words("sum on the GPU, read where the sum is used", "在设备上求和，用到时才读"),
    # SY302
    "sy302.cause": Words(
        "{count:.3g} operations a step wait for the GPU to learn a shape or a value, about {wait_ms:.3g} of"
        " {step_ms:.3g} ms",
        "每步有 {count:.3g} 个操作为得知形状或数值而等待设备，约占 {step_ms:.3g} ms 中的 {wait_ms:.3g} ms",
    ),
    "sy302.change": Words(
        "use torch.where or a weighted sum instead of a mask, and sizes known on the host: {lines}",
        "用 torch.where 或加权求和代替掩码索引，大小取自主机：{lines}",
    ),
    "sy302.source_cause": Words(
        "`{code}` waits for the GPU to know {unknown}, in {step}", "`{code}` 在{step}都要等设备才能知道{unknown}"
    ),
    "sy302.branch": Words("which branch to take", "走哪个分支"),
    "sy302.direction": Words("how to go on", "接下来怎么走"),
    "sy302.cut": Words("where to cut", "在哪里切分"),
    "sy302.mask": Words("how many elements the mask keeps", "掩码保留多少元素"),
    "sy302.list_element": Words("which element of a list is meant", "指的是列表的哪个元素"),
    "sy302.size": Words("how large the result is", "结果有多大"),
    "sy302.answer": Words("the answer", "答案"),
    "sy302.numbers": Words("each of the numbers", "每个数值"),
    "sy302.rounds": Words("how many iterations to run", "循环多少次"),
    "sy302.larger": Words("which one is larger", "哪个更大"),
    "sy302.keep_shape": Words(
        "keep the shape: torch.where(mask, x, 0), or a sum weighted by the mask",
        "保持形状：torch.where(mask, x, 0)，或以掩码加权求和",
    ),
    "sy302.from_host": Words(
        "take the number from the host (len, shape, or a value that is known before the copy)",
        "从主机取这个数（len、shape，或拷贝之前已知的值）",
    ),
    "sy302.decide_on_device": Words(
        "decide on the GPU (torch.where), or look only every k-th step",
        "在设备上做判断（torch.where），或每 k 步才看一次",
    ),
    "sy302.stack_index": Words("index a stacked tensor instead of a list", "对堆叠成的张量取下标，而不是对列表"),
    "sy302.output_size": Words("give it output_size=, a number the host knows", "给它 output_size=，一个主机已知的数"),
    "sy302.stack": Words("torch.stack(...) keeps them on the GPU", "用 torch.stack(...)，它们留在设备上"),
    "sy302.maximum": Words(
        "torch.maximum or torch.minimum, which stay on the GPU", "用 torch.maximum 或 torch.minimum，留在设备上"
    ),
    # SY303
    "sy303.cause": Words(
        "synchronize is called {count:.3g} times a step and waits {wait_ms:.3g} of {step_ms:.3g} ms",
        "每步调用 {count:.3g} 次 synchronize，等待占 {step_ms:.3g} ms 中的 {wait_ms:.3g} ms",
    ),
    "sy303.change": Words(
        "delete the call; time with CUDA events: {lines}", "删掉这个调用，计时改用 CUDA event：{lines}"
    ),
    "sy303.source_cause": Words(
        "`{code}` makes the host wait for the GPU in {step}", "`{code}` 使主机在{step}都等待设备"
    ),
    "sy303.source_change": Words(
        "delete it; to time parts of a step, record torch.cuda.Event pairs and read them later",
        "删掉它；要给一步的各部分计时，用成对的 torch.cuda.Event 记录，以后再读",
    ),
    # SY304
    "sy304.cause": Words(
        "a loop over parameters waits for the GPU {count:.3g} times a step, {loop_ms:.3g} of {step_ms:.3g} ms",
        "一个遍历参数的循环每步等待设备 {count:.3g} 次，占 {step_ms:.3g} ms 中的 {loop_ms:.3g} ms",
    ),
    "sy304.change": Words(
        "one torch._foreach_norm (or get_total_norm) over all gradients, read once in many steps",
        "对所有梯度只做一次 torch._foreach_norm（或 get_total_norm），隔许多步读一次",
    ),
    "sy304.source_cause": Words(
        "reading `{code}` for each parameter waits for the GPU as often in {step}",
        "逐个参数读取 `{code}`，在{step}等待设备的次数与参数一样多",
    ),
    "sy304.source_change": Words(
        "one result for all and one read: torch.nn.utils.get_total_norm(grads), torch._foreach_norm(grads)",
        "合并成一个结果、只读一次：torch.nn.utils.get_total_norm(grads)、torch._foreach_norm(grads)",
    ),
    # SY305
    "sy305.cause": Words(
        "the training thread blocks in {function} for {wait_ms:.3g} of each {step_ms:.3g} ms step",
        "训练线程阻塞在 {function} 里，每步 {step_ms:.3g} ms 中占 {wait_ms:.3g} ms",
    ),
    "sy305.cause_seen": Words(
        "the training thread waits for {what} in {function}, {wait_ms:.3g} of each {step_ms:.3g} ms step",
        "训练线程在 {function} 里等待{what}，每步 {step_ms:.3g} ms 中占 {wait_ms:.3g} ms",
    ),
    "ledger.waits_file": Words("a file", "文件"),
    "ledger.waits_pipe": Words("a pipe or a socket", "管道或套接字"),
    "ledger.waits_lock": Words("another thread", "另一个线程"),
    "ledger.waits_process": Words("a child process", "子进程"),
    "ledger.waits_sleep": Words("a timer", "定时器"),
    "sy305.change": Words(
        "take the call off the training thread, or poll without waiting every 100 steps",
        "把这个调用移出训练线程，或每 100 步轮询一次、不等待",
    ),
    "sy305.source_cause": Words("`{code}` waits for {waits_for}, in {step}", "`{code}` 在{step}都等待{waits_for}"),
    "sy305.clock": Words("a clock", "时钟"),
    "sy305.psutil": Words("psutil's clock", "psutil 的计时"),
    "sy305.keyboard": Words("someone at the keyboard", "键盘输入"),
    "sy305.process": Words("another process", "另一个进程"),
    "sy305.server": Words("a server", "服务器"),
    "sy305.ranks": Words("all other ranks, which backward does already", "所有其他 rank（反向本来就会等）"),
    "sy305.peer": Words("the other end of the connection", "连接的另一端"),
    "sy305.source_change": Words("take it out of the loop, or off the training thread", "把它移出循环，或移出训练线程"),
}

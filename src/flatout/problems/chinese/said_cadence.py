"""What detectors of cadence say of a run, in Chinese.

Times that pass a second now and then come as `1.2e+03`: such a gap takes anything.
"""

from __future__ import annotations

SAID_CADENCE = {
    # Several: pausing.py
    "a step of {n} ms has {n} ms of {}, of which 1/{n} is left": "每步 {0} ms 中有 {1} ms 用于{2}，之后只剩 1/{3}",
    "evaluation": "评估",
    "checkpoints": "写检查点",
    "logging": "写日志",
    "progress output": "进度输出",
    # CA601
    "an evaluation of {n} s after every {n} steps takes {} of the run": "每 {1} 步评估一次，每次 {0} s，占运行的 {2}",
    "evaluate 1 time in {n} (every {n} steps instead of {n}), and after the last step": (
        "每 {0} 次只评估 1 次（每 {1} 步，而不是每 {2} 步），最后一步之后也评估"
    ),
    # CA602
    "an evaluation takes {n} s ({} of the run) because {}": "一次评估要 {0} s（评估占运行的 {1}），因为{2}",
    "{} {n} s to load its samples": "{0} {1} s 来加载它的样本",
    "{n} workers need": " {0} 个 worker 需要",
    "the main process needs": "主进程需要",
    "it computes on {n} at a time": "它一次只算 {0} 个样本",
    "an evaluation takes {n} instead of {n} s": "一次评估从 {1} s 降到 {0} s",
    # CA603
    "{n} checkpoints of {} ms take {} of the run": "{0} 次检查点，每次 {1} ms，占运行的 {2}",
    "save every {n} steps instead of {n}, and at the end; or write in a thread from a copy of the state": (
        "每 {0} 步保存一次，而不是每 {1} 步，结束时也保存；或先拷贝一份状态，再由单独的线程写盘"
    ),
    # CA604
    "{n} log calls of {} ms take {} of the run": "{0} 次日志调用，每次 {1} ms，占运行的 {2}",
    "write 1 in {n} of these images or figures": "这些图像或图表每 {0} 个只写 1 个",
    "log every {n} steps instead of each; keep the values as tensors until then": (
        "每 {0} 步记录一次，而不是每步；在此之前让值保持为张量"
    ),
    "log every {n} steps instead of every {n}": "每 {0} 步记录一次，而不是每 {1} 步",
    # CA605
    # The verb is a gap, so that these take no sentence of another family that ends like them.
    "printing{}{n} of each {n} ms step": "打印{0}每步 {2} ms 中的 {1} ms",
    "redrawing a progress bar{}{n} of each {n} ms step": "重画进度条{0}每步 {2} ms 中的 {1} ms",
    " takes ": "占",
    "print every {n} steps": "每 {0} 步打印一次",
    "tqdm(..., mininterval=1) and set_postfix(..., refresh=False)": (
        "tqdm(..., mininterval=1) 和 set_postfix(..., refresh=False)"
    ),
}

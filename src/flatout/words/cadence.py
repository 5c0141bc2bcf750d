"""Problems of what comes now and then: evaluation, checkpoints, logging, progress output (CA6xx)."""

from __future__ import annotations

from .render import ProblemWords, Words, titles

PROBLEMS = {
    "CA601": ProblemWords(
        Words("Evaluation takes a large share of the run", "评估占了运行的很大一部分"),
        "模型评估得太频繁，或每次用的数据太多，训练有相当一部分时间停着。",
        "每 k 次才评估一次：`if (epoch + 1) % k == 0 or epoch + 1 == epochs:`。保留最后一次；"
        "注意 early stopping 和“最佳检查点”看到模型的机会随之变少。",
    ),
    "CA602": ProblemWords(
        Words("The evaluation loader is slower than the training's", "评估的加载器比训练的慢"),
        "评估用的加载器没有 worker、worker 太少，或一次只给一个样本，一次评估要花模型所需时间的好几倍。",
        "使用 `DataLoader(validation, batch_size=B, num_workers=N, persistent_workers=True)`，B 与训练相同，"
        "或者更大：评估不用保存梯度。",
    ),
    "CA603": ProblemWords(
        Words("Checkpoints take a large share of the run", "写检查点占了运行的很大一部分"),
        "训练要等 `torch.save` 之类把模型写完，写得太频繁或写得太多。",
        "每 k 次保存一次（结束时也保存），或先把参数拷到主机，再由单独的线程写盘；"
        "多 rank 用 `torch.distributed.checkpoint.async_save`。“最佳”检查点里不必带优化器状态。",
    ),
    "CA604": ProblemWords(
        Words("Logging takes a large share of the run", "日志占了运行的很大一部分"),
        "标量、图像、图表或日志行写得太频繁，训练要等它们；为此从设备读值还会再等设备。",
        "每 k 步记录一次；标量先在设备上攒着，一起写出；少写图像，或只在评估时写。",
    ),
    "CA605": ProblemWords(
        Words("Progress output takes a large share of the step", "进度输出占了一步的很大一部分"),
        "每一步都打印一行或重画进度条。写终端、管道或网络盘可能比发射一个小训练步还慢。",
        "每 k 步打印一次；`tqdm(..., mininterval=1)`，`set_postfix(..., refresh=False)`。",
    ),
    "CA606": ProblemWords(
        Words("Work that the training never uses takes much of the run", "训练用不到的工作占了运行的很大一部分"),
        "每一步，或在 `if step % n == 0:` 之下，脚本用模型生成样本、做预览、计算训练用不到的指标、梯度或统计，"
        "而且很费时。",
        "改为每 n 步做一次，增大 n，少取一些样本或缩小预览，或放到每轮结束时做。",
    ),
}
TABLE = titles(PROBLEMS) | {
    # CA601
    "ca601.cause": Words(
        "an evaluation of {each_s:.3g} s after every {period:.3g} steps takes {share:.0%} of the run",
        "每 {period:.3g} 步评估一次，每次 {each_s:.3g} s，占运行的 {share:.0%}",
    ),
    "ca601.change": Words(
        "evaluate 1 time in {times} (every {steps} steps instead of {period}), and after the last step",
        "每 {times} 次只评估 1 次（每 {steps} 步，而不是每 {period} 步），最后一步之后也评估",
    ),
    "ca601.source_cause": Words(
        "a whole pass over the data without gradients runs {often}", "{often}都不带梯度地遍历一次全部数据"
    ),
    "ca601.source_change": Words(
        "evaluate once an epoch, or every thousand steps, and after the last step",
        "每个 epoch 评估一次，或每一千步一次，最后一步之后也评估",
    ),
    # CA602
    "ca602.cause_workers": Words(
        "an evaluation takes {each_s:.3g} s ({share:.0%} of the run) because {workers} workers need {loading_s:.3g} s"
        " to load its samples",
        "一次评估要 {each_s:.3g} s（评估占运行的 {share:.0%}），因为 {workers} 个 worker 需要 {loading_s:.3g} s"
        " 来加载它的样本",
    ),
    "ca602.cause_main_process": Words(
        "an evaluation takes {each_s:.3g} s ({share:.0%} of the run) because the main process needs {loading_s:.3g} s"
        " to load its samples",
        "一次评估要 {each_s:.3g} s（评估占运行的 {share:.0%}），因为主进程需要 {loading_s:.3g} s 来加载它的样本",
    ),
    "ca602.cause_batch": Words(
        "an evaluation takes {each_s:.3g} s ({share:.0%} of the run) because it computes on {batch_size} at a time",
        "一次评估要 {each_s:.3g} s（评估占运行的 {share:.0%}），因为它一次只算 {batch_size} 个样本",
    ),
    "ca602.source_cause": Words(
        "an evaluation that takes one sample at a time launches as much for each as for a whole batch",
        "一次只评估一个样本，每个样本的发射次数与整批一样多",
    ),
    "ca602.source_change": Words(
        "batch_size={batch_size}, as in the training, or larger: no gradients are kept",
        "batch_size={batch_size}，与训练相同，或者更大：评估不用保存梯度",
    ),
    # CA603
    "ca603.cause": Words(
        "{count} checkpoints of {each_ms:.3g} ms take {share:.0%} of the run",
        "{count} 次检查点，每次 {each_ms:.3g} ms，占运行的 {share:.0%}",
    ),
    "ca603.change": Words(
        "save every {steps} steps instead of {period}, and at the end; or write in a thread from a copy of the state",
        "每 {steps} 步保存一次，而不是每 {period} 步，结束时也保存；或先拷贝一份状态，再由单独的线程写盘",
    ),
    "ca603.source_cause": Words("`{code}` writes a checkpoint {often}", "`{code}` {often}都写检查点"),
    "ca603.source_change": Words(
        "save every k-th step, or once an epoch, and at the end", "每 k 步或每个 epoch 保存一次，结束时也保存"
    ),
    # CA604
    "ca604.cause": Words(
        "{count} log calls of {each_ms:.3g} ms take {share:.0%} of the run",
        "{count} 次日志调用，每次 {each_ms:.3g} ms，占运行的 {share:.0%}",
    ),
    "ca604.change_images": Words(
        "write 1 in {times} of these images or figures", "这些图像或图表每 {times} 个只写 1 个"
    ),
    "ca604.change_each_step": Words(
        "log every {times} steps instead of each; keep the values as tensors until then",
        "每 {times} 步记录一次，而不是每步；在此之前让值保持为张量",
    ),
    "ca604.change": Words(
        "log every {steps} steps instead of every {period}", "每 {steps} 步记录一次，而不是每 {period} 步"
    ),
    "ca604.source_cause": Words("`{code}` is computed and written {often}", "`{code}` {often}都计算并写出"),
    "ca604.source_change": Words("write it every k-th step, or with an evaluation", "每 k 步写一次，或在评估时写"),
    # CA606
    "ca606.cause": Words(
        "what is done at {line} takes {ms:.3g} of each {step_ms:.3g} ms step, and the training uses nothing of it",
        "{line} 处做的工作平均占每步 {step_ms:.3g} ms 中的 {ms:.3g} ms，而训练并不使用其结果",
    ),
    "ca606.change": Words("do it {times} times less often, or for less", "次数减少到 {times} 分之一，或少做一些"),
    # CA605
    "ca605.cause_print": Words(
        "printing takes {written_ms:.3g} of each {step_ms:.3g} ms step",
        "打印占每步 {step_ms:.3g} ms 中的 {written_ms:.3g} ms",
    ),
    "ca605.cause_bar": Words(
        "redrawing a progress bar takes {written_ms:.3g} of each {step_ms:.3g} ms step",
        "重画进度条占每步 {step_ms:.3g} ms 中的 {written_ms:.3g} ms",
    ),
    "ca605.change_print": Words("print every {times} steps", "每 {times} 步打印一次"),
    "ca605.change_bar": Words(
        "tqdm(..., mininterval=1) and set_postfix(..., refresh=False)",
        "用 tqdm(..., mininterval=1) 和 set_postfix(..., refresh=False)",
    ),
    "ca605.source_cause": Words("`{code}` writes a line in {step}", "`{code}` 在{step}都输出一行"),
    "ca605.source_change": Words("print every k-th step, or use a progress bar", "每 k 步打印一次，或用进度条"),
}

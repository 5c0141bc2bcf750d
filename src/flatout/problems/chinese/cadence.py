"""Problems of what comes now and then, in Chinese."""

from __future__ import annotations

from flatout.problems.chinese.words import Words

CADENCE = {
    "CA601": Words(
        "评估占了运行的很大一部分",
        "模型评估得太频繁，或每次用的数据太多，训练有相当一部分时间停着。",
        "每 k 次才评估一次：`if (epoch + 1) % k == 0 or epoch + 1 == epochs:`。保留最后一次；"
        "注意 early stopping 和“最佳检查点”看到模型的机会随之变少。",
    ),
    "CA602": Words(
        "评估的数据供给不如训练",
        "评估用的加载器没有 worker、worker 太少，或一次只给一个样本，一次评估要花模型所需时间的好几倍。",
        "使用 `DataLoader(validation, batch_size=B, num_workers=N, persistent_workers=True)`，B 与训练相同，"
        "或者更大：评估不用保存梯度。",
    ),
    "CA603": Words(
        "写检查点占了运行的很大一部分",
        "训练要等 `torch.save` 之类把模型写完，写得太频繁或写得太多。",
        "每 k 次保存一次（结束时也保存），或先把参数拷到主机，再由单独的线程写盘；"
        "多 rank 用 `torch.distributed.checkpoint.async_save`。“最佳”检查点里不必带优化器状态。",
    ),
    "CA604": Words(
        "日志占了运行的很大一部分",
        "标量、图像、图表或日志行写得太频繁，训练要等它们；为此从设备读值还会再等设备。",
        "每 k 步记录一次；标量先在设备上攒着，一起写出；少写图像，或只在评估时写。",
    ),
    "CA605": Words(
        "进度输出占了一步的很大一部分",
        "每一步都打印一行或重画进度条。写终端、管道或网络盘可能比发射一个小训练步还慢。",
        "每 k 步打印一次；`tqdm(..., mininterval=1)`，`set_postfix(..., refresh=False)`。",
    ),
}

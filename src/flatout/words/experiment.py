"""What experiments say: why a remedy was tried, kept or not, how trials ended, and what they prove."""

from __future__ import annotations

from flatout.words.table import Words

TABLE: dict[str, Words] = {
    "experiment.nothing_came_again": Words(
        "the trial was over before anything came again; a longer --budget lets it see more",
        "试验结束前没有任何内容重复出现；加长 --budget 可以看到更多",
    ),
    "experiment.no_evaluation_seen": Words("no evaluation was seen that could be left out", "没有看到可以省去的评估"),
    "experiment.function_not_seen": Words(
        "the function was not seen in the process that trains", "在训练进程中没有看到该函数"
    ),
}

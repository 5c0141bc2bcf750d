"""The catalogue in Chinese on one page: what each problem is, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator

from writing import escaped

from flatout.problems.catalogue import FAMILIES, Problem, problems
from flatout.words.render import problem_words

_PAGE = "problems/index.zh.md"
_FAMILIES = {
    "input": "数据输入：批次没有及时到达",
    "transfer": "数据传输：到设备的拷贝",
    "sync": "同步：主机在等设备，或在等别人",
    "host": "主机：Python 比设备慢",
    "compute": "计算：设备花了不必要的时间",
    "cadence": "周期任务：评估、检查点与日志",
    "memory": "内存：主机内存与显存",
    "config": "设置：没有生效或有害的设置",
    "rank": "多进程与多 GPU",
    "measuring": "测量：会误导人的数字",
}


def pages() -> dict[str, str]:
    return {_PAGE: "\n\n".join(_parts()) + "\n"}


def _parts() -> Iterator[str]:
    yield "# 问题目录"
    yield "[English](index.md)"
    yield (
        f"`flatout run` 和 `flatout check` 的发现背后有 {len(problems())} 个问题。"
        "终端里用 `flatout explain CODE --lang zh` 查看；链接是英文的详细说明："
        "怎样在运行和源码里看出来、能快多少、什么时候没有问题。"
    )
    for family in FAMILIES:
        yield f"## {_FAMILIES[family]}"
        for problem in problems():
            if problem.family == family:
                yield from _problem(problem)


def _problem(problem: Problem) -> Iterator[str]:
    words = problem_words()[problem.code]
    yield f"### {problem.code} {words.title.chinese}"
    yield escaped(words.what_it_is)
    yield f"**怎么办：** {escaped(words.what_to_do).strip()} [详细说明]({problem.code.lower()}.md)"

"""The problems of the catalogue in words.

Each family of problems has a module here with the family's name. It holds

- `PROBLEMS`: for each code the title in both languages, and what the problem is and what to do about it in Chinese,
- `TABLE = titles(PROBLEMS) | {...}`: the titles (`in101.title`), and the words of every message that the family's
  detectors make. Ids begin with the code (`in101.cause`, `in101.change`, `in101.gain` for how a gain was reckoned,
  `in101.source_cause` and `in101.source_change` for what is found in source); what several problems of a family say
  begins with the family (`input.slowest_of`), and what several families say stands below.

The English text of a problem is the docstring of its module in `flatout.problems`, and stands nowhere else. The first
line of the docstring is a sentence that says more than the title does.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from types import ModuleType

from .table import ProblemWords, Words

# What detectors of several families say.
TABLE = {
    "problems.step_of_function": Words("every training step ({function})", "每个训练步（{function}）"),
    "problems.step_of_loop": Words("every step of the training loop in line {line}", "第 {line} 行的训练循环的每一步"),
    "problems.step_of_loop_in_file": Words(
        "every step of the training loop in {file}:{line}", "{file}:{line} 的训练循环的每一步"
    ),
    "problems.in_step": Words("in {step}", "在{step}"),
    "problems.at_each_call": Words("at each {function}()", "在每次 {function}() 中"),
    "problems.every_few_steps": Words("at every {period} steps", "每隔 {period} 步"),
    "problems.setting_missing": Words("{setting} is not given", "没有设 {setting}"),
    "problems.both": Words("{first}; {second}", "{first}；{second}"),
    "problems.setting_is": Words("{setting} is {value}", "{setting} 是 {value}"),
}


@cache
def problem_words() -> dict[str, ProblemWords]:
    """What is said of every problem, by its code."""
    return {code: words for family in _families() for code, words in family.PROBLEMS.items()}


def _families() -> Iterator[ModuleType]:
    package = importlib.import_module(__package__)
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{__package__}.{info.name}")
        if hasattr(module, "PROBLEMS"):
            yield module

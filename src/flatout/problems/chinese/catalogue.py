"""Finds what is said in Chinese of a problem, by its code."""

from __future__ import annotations

from flatout.problems.chinese.cadence import CADENCE
from flatout.problems.chinese.compute import COMPUTE
from flatout.problems.chinese.config import CONFIG
from flatout.problems.chinese.host import HOST
from flatout.problems.chinese.input import INPUT
from flatout.problems.chinese.measuring import MEASURING
from flatout.problems.chinese.memory import MEMORY
from flatout.problems.chinese.rank import RANK
from flatout.problems.chinese.sync import SYNC
from flatout.problems.chinese.transfer import TRANSFER
from flatout.problems.chinese.words import Words
from flatout.words.problems import problem_words

CHINESE: dict[str, Words] = INPUT | TRANSFER | SYNC | HOST | COMPUTE | CADENCE | MEMORY | CONFIG | RANK | MEASURING
# Families whose words stand in `flatout.words` already.
CHINESE |= {
    code: Words(words.title.chinese, words.what_it_is, words.what_to_do) for code, words in problem_words().items()
}

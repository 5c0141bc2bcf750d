"""Finds what is said in Chinese of a problem, by its code."""

from __future__ import annotations

from flatout.problems.chinese.cadence import CADENCE
from flatout.problems.chinese.compute import COMPUTE
from flatout.problems.chinese.host import HOST
from flatout.problems.chinese.measuring import MEASURING
from flatout.problems.chinese.rank import RANK
from flatout.problems.chinese.sync import SYNC
from flatout.problems.chinese.words import Words
from flatout.words.problems import problem_words

CHINESE: dict[str, Words] = SYNC | HOST | COMPUTE | CADENCE | RANK | MEASURING
# Families whose words stand in `flatout.words` already.
CHINESE |= {
    code: Words(words.title.chinese, words.what_it_is, words.what_to_do) for code, words in problem_words().items()
}

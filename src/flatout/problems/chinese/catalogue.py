"""What is said in Chinese of a problem, by its code. Goes when pages take it from `flatout.words.problems`."""

from __future__ import annotations

from flatout.problems.chinese.words import Words
from flatout.words.problems import problem_words

CHINESE: dict[str, Words] = {
    code: Words(words.title.chinese, words.what_it_is, words.what_to_do) for code, words in problem_words().items()
}

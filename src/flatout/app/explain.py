"""`flatout explain`: what the catalogues know about a problem or a remedy."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from rich.cells import cell_len

from flatout.errors import FlatoutError
from flatout.problems.catalogue import (
    FAMILIES,
    HEADINGS,
    IN_RUN,
    IN_SOURCE,
    Problem,
    find_problem,
    problems,
    problems_of_remedy,
)
from flatout.remedies.catalogue import Remedy, known, remedies
from flatout.words.render import problem_words

_WIDTH = 100
# Code, a word, or one letter.
_PIECES = re.compile(r"`[^`]*`|[!-~]+|.")
_STOPS = "，。；：、）”"
# What is said in Chinese; of remedies there is English only.
_WHAT_IT_IS, _WHAT_TO_DO = "是什么", "怎么办"
_SAY = {
    "en": {
        "remedies": " remedies, for flatout run --remedy ID=VALUE",
        "more": " flatout explain CODE tells more, and flatout explain ID.",
        "remedy": " Remedy: {id}",
        "whole": "",
    },
    "zh": {
        "remedies": " 措施（英文），用法：flatout run --remedy ID=VALUE",
        "more": " flatout explain CODE --lang zh 给出更多，flatout explain ID 说明一项措施（英文）。",
        "remedy": " 措施：{id}",
        "whole": " 完整说明（英文）：flatout explain {code}",
    },
}


def list_catalogue(as_json: bool = False, language: str = "en") -> str:
    """Every problem by family, with its code, name and title, and every remedy."""
    _check(language)
    found = [_in(language, problem) for problem in problems()]
    if as_json:
        return json.dumps([*map(_facts, found), *map(_remedy_facts, remedies())], indent=1)
    blocks = []
    for family in FAMILIES:
        lines = [f"   {p.code}  {p.slug.replace('_', '-'):<28} {p.title}" for p in found if p.family == family]
        if lines:
            blocks.append("\n".join([f" {family}", *lines]))
    lines = [f"   {r.id:<24} {r.safety:<10} {r.title}" for r in remedies()]
    blocks.append("\n".join([_SAY[language]["remedies"], *lines]))
    return "\n\n".join([*blocks, _SAY[language]["more"]])


def run_explain(name: str, as_json: bool = False, language: str = "en") -> str:
    """All about one problem, or one remedy."""
    _check(language)
    if name in known():
        return _explain_remedy(known()[name], as_json)
    problem = _in(language, find_problem(name))
    if as_json:
        return json.dumps({**_facts(problem), "text": problem.text.strip()}, indent=1)
    title, _, rest = problem.text.strip().partition("\n")
    lines = [f" {problem.code} {problem.slug.replace('_', '-')} · {problem.family}", f" {title}", ""]
    headings = (*HEADINGS, IN_RUN, IN_SOURCE, _WHAT_IT_IS, _WHAT_TO_DO)
    for line in rest.strip().splitlines():
        heading = next((h for h in headings if line.startswith(f"{h}: ")), None)
        lines += [f" {heading}", f"   {line.removeprefix(f'{heading}: ')}"] if heading else [f"   {line}".rstrip()]
    say = _SAY[language]
    ends = [say["remedy"].format(id=problem.remedy) if problem.remedy else "", say["whole"].format(code=problem.code)]
    return "\n".join([*lines, *(f"\n{end}" for end in ends if end)])


def _check(language: str) -> None:
    if language not in _SAY:
        raise FlatoutError(f"--lang must be one of {', '.join(_SAY)}, got {language!r}")


def _in(language: str, problem: Problem) -> Problem:
    if language == "en":
        return problem
    words = problem_words()[problem.code]
    parts = [words.title.chinese, f"{_WHAT_IT_IS}: {words.what_it_is}", f"{_WHAT_TO_DO}: {words.what_to_do}"]
    return replace(problem, title=words.title.chinese, text="\n\n".join(map(_wrap_chinese, parts)))


def _wrap_chinese(text: str) -> str:
    """Chinese has no spaces to break at: a line ends anywhere but in code, in a word, or before a stop."""
    lines = [""]
    for piece in _PIECES.findall(text):
        if cell_len(lines[-1] + piece) > _WIDTH and piece not in _STOPS:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.strip() for line in lines)


def _facts(problem: Problem) -> dict[str, object]:
    return {
        "code": problem.code,
        "name": problem.slug.replace("_", "-"),
        "family": problem.family,
        "title": problem.title,
        "remedy": problem.remedy,
    }


def _explain_remedy(remedy: Remedy, as_json: bool) -> str:
    if as_json:
        return json.dumps({**_remedy_facts(remedy), "text": remedy.text.strip()}, indent=1)
    lines = [f" {remedy.id} · {remedy.safety}", f" {remedy.title}", ""]
    lines += [f"   {line}".rstrip() for line in remedy.text.strip().splitlines()]
    answers = ", ".join(problem.code for problem in problems_of_remedy(remedy.id))
    return "\n".join([*lines, "", f" Value: {remedy.value.words}", *([f" Answers: {answers}"] if answers else [])])


def _remedy_facts(remedy: Remedy) -> dict[str, object]:
    return {"remedy": remedy.id, "title": remedy.title, "safety": remedy.safety, "value": remedy.value.words}

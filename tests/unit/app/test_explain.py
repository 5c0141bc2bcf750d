"""`flatout explain` in both languages."""

from __future__ import annotations

import json

import pytest
from rich.cells import cell_len

from flatout.app.explain import list_catalogue, run_explain
from flatout.errors import FlatoutError
from flatout.problems.catalogue import problems
from flatout.words.render import problem_words


@pytest.mark.parametrize("code", problem_words())
def test_a_problem_in_chinese_says_all_of_it_in_lines_that_fit(code: str) -> None:
    page = run_explain(code, language="zh")

    words = problem_words()[code]
    joined = "".join(page.split())
    for said in (words.title.chinese, words.what_it_is, words.what_to_do):
        assert "".join(said.split()) in joined
    assert page.endswith(f"flatout explain {code}")
    # A stop may hang over, and code is never cut.
    assert max(map(cell_len, page.splitlines())) <= 110


def test_the_list_has_every_title() -> None:
    page = list_catalogue(language="zh")

    for problem in problems():
        assert f"{problem.code}  " in page and problem_words()[problem.code].title.chinese in page
    assert all(problem.title in list_catalogue() for problem in problems())


def test_json_has_the_words_of_the_language() -> None:
    title = problem_words()["IN101"].title.chinese
    assert json.loads(run_explain("IN101", as_json=True, language="zh"))["title"] == title
    assert json.loads(list_catalogue(as_json=True))[0]["title"] == problems()[0].title


@pytest.mark.parametrize("name", ["IN101", "loader.workers"])
def test_another_language_is_a_mistake(name: str) -> None:
    with pytest.raises(FlatoutError, match="--lang must be one of en, zh, got 'fr'"):
        run_explain(name, language="fr")

"""The pages made from code are complete, and the written ones say nothing that is not so."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import click
import jsonschema
import pytest

from flatout.cli import VERBS, _group
from flatout.problems.catalogue import FAMILIES, HEADINGS, problems
from flatout.remedies.catalogue import remedies
from flatout.report.json import to_json
from flatout.words.render import problem_words
from tests.cases import cases_of
from tests.cases.evidence import on_gpu, run
from tests.unit.docs.pages import DOCS, ROOT, site_module, tables, written_pages

WORKLOADS = sorted((DOCS / "workloads").glob("*.md"))
RESULT = re.compile(r"benchmarks/results/([\w.-]+\.md)#([\w.-]+)")


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    made: dict[str, str] = site_module("hooks").generated()
    return made


def test_every_problem_has_its_page_and_its_line_in_the_index(generated: dict[str, str]) -> None:
    index = generated["problems/index.md"]

    for problem in problems():
        page = generated[f"problems/{problem.code.lower()}.md"]
        assert page.startswith(f"# {problem.code} {problem.title}\n")
        assert [h for h in HEADINGS if f"\n## {h}\n" not in page] == [], problem.code
        assert f"[{problem.code}]({problem.code.lower()}.md)" in index
        assert problem.remedy is None or f"reference/remedies/{problem.remedy}.md" in page
        assert page.count("\n- ") >= len(cases_of(problem).runs)


def test_every_problem_is_on_the_chinese_page(generated: dict[str, str]) -> None:
    page = generated["problems/index.zh.md"]

    for problem in problems():
        assert f"\n### {problem.code} {problem_words()[problem.code].title.chinese}\n" in page
        assert f"[详细说明]({problem.code.lower()}.md)" in page
    assert page.count("\n## ") == len(FAMILIES)


def test_every_remedy_has_its_page_with_class_and_value(generated: dict[str, str]) -> None:
    for remedy in remedies():
        page = generated[f"reference/remedies/{remedy.id}.md"]
        assert f"**{remedy.safety}**" in page
        assert remedy.text.strip().splitlines()[-1][:20].strip(" `") in page.replace("\\", "")
        assert f"[`{remedy.id}`]({remedy.id}.md)" in generated["reference/remedies/index.md"]


def test_every_verb_has_its_page_with_all_options(generated: dict[str, str]) -> None:
    for verb in VERBS:
        page = generated[f"reference/commands/{verb}.md"]
        command = _group.get_command(click.Context(_group), verb)
        assert command is not None
        commands = [command, *(command.commands.values() if isinstance(command, click.Group) else ())]
        options = [name for one in commands for p in one.params if isinstance(p, click.Option) for name in p.opts]
        assert [option for option in options if option not in page] == [], verb


def test_the_schema_holds_for_a_report_and_for_no_other() -> None:
    schema = site_module("schema_pages").schema()
    report = to_json(run(gpu=on_gpu()).report)

    jsonschema.validate(report, schema)
    for broken in ({**report, "schema": 2}, {**report, "verdict": None}, {k: report[k] for k in report if k != "gpu"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, schema)


def test_the_schema_tells_what_is_written_above_a_field() -> None:
    schema = site_module("schema_pages").schema()

    assert "had not settled" in schema["properties"]["warmup_steps"]["description"]
    assert schema["$defs"]["PhaseShare"]["description"].startswith("`share` of the step's wall time")


def test_docstrings_become_markdown_that_shows_what_they_say() -> None:
    escaped = site_module("writing").escaped

    assert escaped("a <run> of *all*, `a_b<c>` and _x_").strip() == r"a &lt;run> of \*all\*, `a_b<c>` and \_x\_"
    assert escaped("    code <as> it_is").strip("\n") == "    code <as> it_is"


def test_codes_and_remedies_in_a_text_are_linked_and_code_is_not() -> None:
    linked = site_module("cross_links").linked
    text = "# IN101\nIN101, `loader.workers`, `IN101`, [IN101](x.md)\n\n    IN101\n"

    assert linked(text, "workloads/a.md") == (
        "# IN101\n[IN101](../problems/in101.md), [`loader.workers`](../reference/remedies/loader.workers.md), "
        "`IN101`, [IN101](x.md)\n\n    IN101\n"
    )
    assert linked("IN101 and IN102, not XX999", "problems/in101.md") == "IN101 and [IN102](in102.md), not XX999"


def test_both_quick_starts_have_the_same_commands_and_the_same_verdict() -> None:
    english, chinese = ((DOCS / name).read_text() for name in ("quick-start.md", "quick-start.zh.md"))

    assert _indented(english) == _indented(chinese) != []
    assert _fences(english) == _fences(chinese) != []


def test_the_quick_start_names_commands_and_options_that_exist() -> None:
    context = click.Context(_group)

    for line in _indented((DOCS / "quick-start.md").read_text()):
        program, verb, *words = line.split()
        if program == "flatout":
            command = _group.get_command(context, verb)
            assert command is not None, line
            known = {name for p in command.params for name in p.opts} | {"--your"}
            assert {word for word in words if word.startswith("-")} <= known, line


def test_every_result_that_a_page_names_is_there() -> None:
    named = [(page, *found) for page in written_pages() for found in RESULT.findall(page.read_text())]
    assert named, "no page names a result"

    missing = [f"{page.name}: {name}#{anchor}" for page, name, anchor in named if not _result(name, anchor)]
    assert not missing


def _result(name: str, anchor: str) -> str:
    """The one result of a benchmark's page that a link names; empty where there is none."""
    file = ROOT / "benchmarks/results" / name
    _, found, after = (file.read_text() if file.is_file() else "").partition(f'<a id="{anchor}"></a>')
    return after.partition('<a id="')[0] if found else ""


@pytest.mark.parametrize("page", [*WORKLOADS, DOCS / "how-it-measures.md"], ids=lambda page: page.stem)
def test_every_figure_of_a_table_stands_in_the_source_it_names(page: Path) -> None:
    for rows, below in tables(page.read_text()):
        figures = [figure for row in rows[1:] for cell in row[1:] for figure in _figures(cell)]
        if not figures:
            continue
        sources = RESULT.findall(below)
        assert sources, f"{page.name}: no source below the table that begins {rows[1]}"
        text = "\n".join(_result(*source) for source in sources)
        assert [figure for figure in figures if figure not in _figures(text)] == [], page.name


@pytest.mark.parametrize("page", [DOCS / "guides.md", DOCS / "guides.zh.md"], ids=lambda page: page.stem)
def test_what_we_measured_against_the_guides_stands_in_a_result(page: Path) -> None:
    text = page.read_text()
    # What stands in quotation marks is the guides' own.
    ours = set(re.findall(r"×\d+\.\d+|\d+\.\d\d%", re.sub(r"\"[^\"\n]*\"|“[^”\n]*”", "", text)))
    results = "\n".join(_result(*source) for source in RESULT.findall(text))

    assert ours and ours <= _figures(results)


@pytest.mark.parametrize("page", WORKLOADS, ids=lambda page: page.stem)
def test_a_guide_s_headline_stands_in_its_tables(page: Path) -> None:
    headline, *rest = page.read_text().splitlines()
    cells = {cell for table, _ in tables("\n".join(rest)) for row in table for cell in row}

    assert _figures(headline) <= cells


@pytest.mark.parametrize("page", WORKLOADS, ids=lambda page: page.stem)
def test_a_guide_names_the_remedy_that_the_catalogue_has(page: Path) -> None:
    by_code = {problem.code: problem for problem in problems()}
    rows = [row for table, _ in tables(page.read_text()) for row in table if row[0].split()[0] in by_code]
    assert rows or page.stem == "index"

    for row in rows:
        code, _, title = row[0].partition(" ")
        assert row[-1].strip("`") == (by_code[code].remedy or "–"), code
        assert title.lower() == by_code[code].title.lower()


def test_pages_name_problems_and_remedies_that_exist() -> None:
    codes = {problem.code for problem in problems()}
    ids = {remedy.id for remedy in remedies()}
    families = "|".join(sorted({name.partition(".")[0] for name in ids}))

    for page in written_pages():
        text = page.read_text()
        assert set(re.findall(r"\b[A-Z]{2}\d{3}\b", text)) <= codes, page.name
        assert set(re.findall(rf"`((?:{families})\.\w+)`", text)) <= ids, page.name


def test_a_guide_does_not_claim_what_was_not_measured() -> None:
    measured = "fix-full-nvidia-h200" in (ROOT / "benchmarks/results/fix.md").read_text()

    for page in WORKLOADS:
        said = "not measured yet" in page.read_text()
        assert said or measured, f"{page.name} says nothing of `flatout fix` on a GPU"


def test_both_pages_about_the_guides_say_the_same_of_each_claim() -> None:
    english, chinese = (tables((DOCS / name).read_text()) for name in ("guides.md", "guides.zh.md"))
    words = {"right": "对", "wrong": "错", "it depends": "看情况"}

    assert len(english) == len(chinese)
    for (ours, _), (theirs, _) in zip(english, chinese, strict=True):
        assert len(ours) == len(theirs)
        for one, other in zip(ours[1:], theirs[1:], strict=True):
            judged = [words[word] for word in re.findall(r"\*\*([^*]+)\*\*", one[1])]
            assert judged == re.findall(r"\*\*([^*]+)\*\*", other[1]), one[0]
            assert _named(one) == _named(other), one[0]


@pytest.mark.parametrize("picture", sorted((DOCS / "pictures").glob("*.svg")), ids=lambda picture: picture.stem)
def test_a_picture_is_whole_readable_in_the_dark_and_fetches_nothing(picture: Path) -> None:
    text = picture.read_text()

    assert ElementTree.fromstring(text).get("aria-label")
    assert "prefers-color-scheme: dark" in text
    assert re.findall(r"https?://\S+?(?=[\"'\s])", text) == ["http://www.w3.org/2000/svg"]
    assert "<script" not in text and len(text) < 20_000


def _indented(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.startswith("    ") and line.strip()]


def _fences(text: str) -> list[str]:
    return re.findall(r"```.*?```", text, flags=re.DOTALL)


def _figures(text: str) -> set[str]:
    """Numbers as they are written, those of line numbers and codes left out."""
    plain = re.sub(r"\S+\.(?:py|yaml|md):\d+|\[[^\]]*\]\([^)]*\)|`[^`]*`", " ", text)
    return set(re.findall(r"(?<![\w.])×?\d[\d,]*(?:\.\d+)?%?(?!\w)", plain))


def _named(row: list[str]) -> list[str]:
    """Problems and remedies."""
    known = {problem.code for problem in problems()} | {remedy.id for remedy in remedies()}
    return sorted(word for word in re.findall(r"[\w.]+", " ".join(row)) if word in known)


@pytest.mark.parametrize("page", [DOCS / "architecture.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.stem)
def test_files_that_a_page_on_the_code_names_are_there(page: Path) -> None:
    named = set(re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.(?:py|toml))?)`", page.read_text()))
    assert len(named) > 5

    places = (ROOT, ROOT / "src/flatout")
    assert [name for name in sorted(named) if not any((place / name).exists() for place in places)] == []

"""A page for every problem of the catalogue, and their index by family."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from remedy_pages import remedy_link
from writing import escaped, fenced, table

from flatout.problems.catalogue import FAMILIES, HEADINGS, IN_RUN, IN_SOURCE, Problem, problems

sys.path.append(str(Path(__file__).resolve().parents[2]))

from tests.cases import cases_of
from tests.cases.code import SourceCase

_FOLDER = "problems"
_ALL_HEADINGS = (*HEADINGS, IN_RUN, IN_SOURCE)
_NAMES = ("torch", "cudnn", "flatout")
_FAMILY_WORDS = {
    "input": "batches are not there in time",
    "transfer": "copies to the device",
    "sync": "the host waits for the device, or for somebody else",
    "host": "Python is slower than the device",
    "compute": "the device works longer than it has to",
    "cadence": "evaluation, checkpoints and logging",
    "memory": "RAM and GPU memory",
    "config": "settings that do not arrive or do harm",
    "rank": "several processes and several GPUs",
    "measuring": "figures that mislead",
}


def pages() -> dict[str, str]:
    made = {f"{_FOLDER}/{_file(problem)}": _page(problem) for problem in problems()}
    return {f"{_FOLDER}/index.md": _index(), **made}


def problem_link(code: str, to: str = f"../../{_FOLDER}/") -> str:
    """A link from a page two folders down, or from wherever `to` leads to the problems' folder."""
    return f"[{code}]({to}{code.lower()}.md)"


def _file(problem: Problem) -> str:
    return f"{problem.code.lower()}.md"


def _index() -> str:
    lines = [
        "# Problems",
        "",
        f"The catalogue behind the findings: {len(problems())} problems. `flatout run` looks for those that show in "
        "a run, `flatout check` for those that show in source. `flatout explain CODE` prints the same text.",
        "",
    ]
    for family in FAMILIES:
        found = [problem for problem in problems() if problem.family == family]
        lines += [f"## {family.capitalize()}: {_FAMILY_WORDS[family]}", "", _listed(found)]
    return "\n".join(lines)


def _listed(found: Iterable[Problem]) -> str:
    rows = [
        (
            f"[{one.code}]({_file(one)})",
            one.title,
            "yes" if one.in_run else "–",
            "yes" if one.in_source else "–",
            remedy_link(one.remedy, "../reference/remedies/") if one.remedy else "–",
        )
        for one in found
    ]
    return table(("code", "problem", "in a run", "in source", "remedy from outside"), rows)


def _page(problem: Problem) -> str:
    _, _, text = problem.text.strip().partition("\n")
    name = problem.slug.replace("_", "-")
    parts = [
        f"# {problem.code} {problem.title}",
        f"[Problems](index.md) · {problem.family} · `{name}` · `flatout explain {problem.code}`",
        _with_headings(text),
        "## From outside",
        _outside(problem),
    ]
    if problem.comes_from:
        others = ", ".join(problem_link(code, "") for code in problem.comes_from)
        parts += ["## Not reported beside", f"These explain it away: {others}."]
    parts += ["## Cases", _run_cases(problem), _source_cases(cases_of(problem).source)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _with_headings(text: str) -> str:
    lines: list[str] = []
    for line in escaped(text.strip()).splitlines():
        heading = next((h for h in _ALL_HEADINGS if line.startswith(f"{h}: ")), None)
        lines += [f"## {heading}", "", _sentence(line.removeprefix(f"{heading}: "))] if heading else [line]
    return "\n".join(lines)


def _sentence(text: str) -> str:
    """Behind a colon it begins small, below a heading it does not; a name stays as it is written."""
    return text if text.startswith(_NAMES) else text[:1].upper() + text[1:]


def _outside(problem: Problem) -> str:
    if problem.remedy is None:
        return "flatout has no remedy for it that works from outside: the change is made in the source, by hand" + (
            " or by `flatout check --fix` where the finding says so." if problem.in_source else "."
        )
    link = remedy_link(problem.remedy, "../reference/remedies/")
    return f"{link}: `flatout fix train.py` tries it where a run calls for it and keeps it if it surely helps."


def _run_cases(problem: Problem) -> str:
    cases = cases_of(problem).runs
    if not cases:
        return ""
    said = "\n".join(f"- {escaped(case.name).strip()}" for case in cases)
    return f"Its rule is tested on these runs:\n\n{said}"


def _source_cases(cases: tuple[SourceCase, ...]) -> str:
    """The first that has it and the first that has not, in full; the others by name."""
    if not cases:
        return ""
    has = next((case for case in cases if case.lines), None)
    has_not = next((case for case in cases if not case.lines), None)
    shown = [case for case in (has, has_not) if case is not None]
    others = "\n".join(f"- {escaped(case.name).strip()}" for case in cases if case not in shown)
    parts = ["Its rule is tested on this code, where lines that it reports end in `# found`:"]
    parts += [_shown(case) for case in shown]
    return "\n\n".join([*parts, f"And on more code:\n\n{others}" if others else ""])


def _shown(case: SourceCase) -> str:
    files = [
        (f"`{name}`:\n\n" if len(case.files) > 1 else "") + fenced(text, _language(name))
        for name, text in case.files.items()
    ]
    return f"- {escaped(case.name).strip()}\n\n" + "\n".join(files)


def _language(file: str) -> str:
    return {"py": "python", "yaml": "yaml", "yml": "yaml", "json": "json", "toml": "toml"}.get(
        file.rpartition(".")[2], "text"
    )

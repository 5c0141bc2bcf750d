"""`flatout explain`: what the catalogue knows about a problem."""

from __future__ import annotations

import json

from flatout.problems.catalogue import FAMILIES, HEADINGS, IN_RUN, IN_SOURCE, Problem, find, problems


def listed(as_json: bool = False) -> str:
    """Every problem by family, with its code, name and title."""
    if as_json:
        return json.dumps([_facts(problem) for problem in problems()], indent=1)
    blocks = []
    for family in FAMILIES:
        lines = [f"   {p.code}  {p.slug.replace('_', '-'):<28} {p.title}" for p in problems() if p.family == family]
        if lines:
            blocks.append("\n".join([f" {family}", *lines]))
    return "\n\n".join([*blocks, " flatout explain CODE tells more."])


def explained(name: str, as_json: bool = False) -> str:
    """All about one problem."""
    problem = find(name)
    if as_json:
        return json.dumps({**_facts(problem), "text": problem.text.strip()}, indent=1)
    title, _, rest = problem.text.strip().partition("\n")
    lines = [f" {problem.code} {problem.slug.replace('_', '-')} · {problem.family}", f" {title}", ""]
    for line in rest.strip().splitlines():
        heading = next((h for h in (*HEADINGS, IN_RUN, IN_SOURCE) if line.startswith(f"{h}: ")), None)
        lines += [f" {heading}", f"   {line.removeprefix(f'{heading}: ')}"] if heading else [f"   {line}".rstrip()]
    if problem.remedy:
        lines += ["", f" Remedy: {problem.remedy}"]
    return "\n".join(lines)


def _facts(problem: Problem) -> dict[str, object]:
    return {
        "code": problem.code,
        "name": problem.slug.replace("_", "-"),
        "family": problem.family,
        "title": problem.title,
        "remedy": problem.remedy,
    }

"""`flatout explain`: what the catalogues know about a problem or a remedy."""

from __future__ import annotations

import json

from flatout.problems.catalogue import FAMILIES, HEADINGS, IN_RUN, IN_SOURCE, Problem, find, problems
from flatout.remedies.catalogue import Remedy, known, remedies


def listed(as_json: bool = False) -> str:
    """Every problem by family, with its code, name and title, and every remedy."""
    if as_json:
        return json.dumps([*map(_facts, problems()), *map(_remedy_facts, remedies())], indent=1)
    blocks = []
    for family in FAMILIES:
        lines = [f"   {p.code}  {p.slug.replace('_', '-'):<28} {p.title}" for p in problems() if p.family == family]
        if lines:
            blocks.append("\n".join([f" {family}", *lines]))
    lines = [f"   {r.id:<24} {r.safety:<10} {r.title}" for r in remedies()]
    blocks.append("\n".join([" remedies, for flatout run --remedy ID=VALUE", *lines]))
    return "\n\n".join([*blocks, " flatout explain CODE tells more, and flatout explain ID."])


def explained(name: str, as_json: bool = False) -> str:
    """All about one problem, or one remedy."""
    if name in known():
        return _remedy_explained(known()[name], as_json)
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


def _remedy_explained(remedy: Remedy, as_json: bool) -> str:
    if as_json:
        return json.dumps({**_remedy_facts(remedy), "text": remedy.text.strip()}, indent=1)
    lines = [f" {remedy.id} · {remedy.safety}", f" {remedy.title}", ""]
    lines += [f"   {line}".rstrip() for line in remedy.text.strip().splitlines()]
    return "\n".join([*lines, "", f" Value: {remedy.value.words}"])


def _remedy_facts(remedy: Remedy) -> dict[str, object]:
    return {"remedy": remedy.id, "title": remedy.title, "safety": remedy.safety, "value": remedy.value.words}

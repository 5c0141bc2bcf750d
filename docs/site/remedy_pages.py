"""A page for every remedy, from its docstring, and their index by class."""

from __future__ import annotations

from writing import escaped, table

from flatout.problems.catalogue import problems_of_remedy
from flatout.remedies.catalogue import SAFETIES, Remedy, remedies

_FOLDER = "reference/remedies"
_PROMISES = {
    "lossless": "the same samples, in the same order, and the same numbers",
    "numeric": "the same training, other rounding",
    "training": "changes what is learnt or when it is looked at; never unless you ask for it",
}


def pages() -> dict[str, str]:
    made = {f"{_FOLDER}/{remedy.id}.md": _page(remedy) for remedy in remedies()}
    return {f"{_FOLDER}/index.md": _index(), **made}


def remedy_link(identity: str, to: str = "") -> str:
    return f"[`{identity}`]({to}{identity}.md)"


def _index() -> str:
    lines = [
        "# Remedies",
        "",
        "What flatout can do about a slow training from outside: `flatout run --remedy ID=VALUE train.py`, or a "
        "profile. How they work and what a run says about them: [Remedies: faster from outside](../../remedies.md).",
        "",
    ]
    for safety in SAFETIES:
        rows = [(remedy_link(r.id), r.title, escaped(r.value.words)) for r in remedies() if r.safety == safety]
        lines += [
            f"## {safety.capitalize()}: {_PROMISES[safety]}",
            "",
            table(("remedy", "what it does", "value"), rows),
        ]
    return "\n".join(lines)


def _page(remedy: Remedy) -> str:
    answers = problems_of_remedy(remedy.id)
    rows = [
        ("class", f"**{remedy.safety}**: {_PROMISES[remedy.safety]}"),
        ("value", escaped(remedy.value.words)),
        (
            "answers",
            ", ".join(f"[{answer.code}](../../problems/{answer.code.lower()}.md)" for answer in answers) or "–",
        ),
        ("excludes", ", ".join(_named(conflict) for conflict in remedy.conflicts) or "–"),
    ]
    return "\n\n".join(
        [
            f"# {remedy.id}",
            f"[Remedies](index.md) · {remedy.title}",
            table(("", ""), rows),
            "## What it does, and when it refuses",
            escaped(remedy.text.strip()),
            "## Asking for it",
            "`flatout fix` tries it where a run calls for it"
            + ("." if remedy.safety == "lossless" else f", if `--allow {remedy.safety}` is given.")
            + " By hand:",
            f"    flatout run --remedy {remedy.id}=VALUE train.py",
            "",
        ]
    )


def _named(identity: str) -> str:
    """A remedy that is planned beside may be named before it is there."""
    known = {remedy.id for remedy in remedies()}
    return remedy_link(identity) if identity in known else f"`{identity}`"

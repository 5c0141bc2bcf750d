"""Codes of problems and ids of remedies lead to their pages, wherever a page names them."""

from __future__ import annotations

import posixpath
import re
from functools import cache

from flatout.problems.catalogue import problems
from flatout.remedies.catalogue import remedies

# What is a link, code or a comment already; codes are looked for between these.
_WHOLE = re.compile(r"(\[[^\]]*\]\([^)]*\)|`[^`]+`|<!--.*?-->)")
_CODE = re.compile(r"\b[A-Z]{2}\d{3}\b")


def linked(markdown: str, path: str) -> str:
    """The page at `path`, its text linked; headings and blocks of code stay as they are."""
    links = {name: link for name, (target, link) in _from(posixpath.dirname(path)).items() if target != path}
    lines, fenced = [], False
    for line in markdown.split("\n"):
        fenced ^= line.lstrip().startswith("```")
        lines.append(line if fenced or line.startswith(("#", "    ", "```")) else _line(line, links))
    return "\n".join(lines)


@cache
def _from(folder: str) -> dict[str, tuple[str, str]]:
    """For a page in this folder, by name: the page that tells about it, and the link there."""
    targets = {problem.code: f"problems/{problem.code.lower()}.md" for problem in problems()}
    targets |= {f"`{remedy.id}`": f"reference/remedies/{remedy.id}.md" for remedy in remedies()}
    return {name: (target, f"[{name}]({posixpath.relpath(target, folder or '.')})") for name, target in targets.items()}


def _line(text: str, links: dict[str, str]) -> str:
    parts = _WHOLE.split(text)
    # Every second part is a whole of its own; of these a remedy's id is linked.
    return "".join(links.get(p, p) if i % 2 else _in_text(p, links) for i, p in enumerate(parts))


def _in_text(text: str, links: dict[str, str]) -> str:
    return _CODE.sub(lambda found: links.get(found.group(), found.group()), text)

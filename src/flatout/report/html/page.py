"""Puts a page together: templates, words in both languages, the policy that lets nothing in, and data that is inert.

Everything that was read from a run is escaped by the template. What the charts need goes in as JSON in a block that no
browser executes. The policy names our own script and style by their hashes and forbids everything else, so even a
mistake here could not make the page fetch or run anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup, escape

from flatout.records.message import Message, message
from flatout.records.report import Verdict
from flatout.words import Language, chinese_if_known, english, render
from flatout.words.pages import PAGE
from flatout.words.render import problem_words
from flatout.words.verdict import verdict_in_chinese

LANGUAGES: tuple[Language, ...] = ("en", "zh")
_OF_CHARTS = "chart_"
_STYLES = ("vendor/uPlot.min.css", "base.css", "report.css")
_SCRIPTS = ("vendor/uPlot.iife.min.js", "charts.js", "report.js")
# It asks to go with every copy.
_LICENCE = "vendor/uPlot-LICENSE.txt"
# JSON between script tags: nothing in it may end the block or begin another.
_INERT: dict[str, str | int | None] = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}


@dataclass(frozen=True, slots=True)
class Page:
    """What a kind of page gives to its template beside the words."""

    template: str
    title: str
    kind: str
    context: Mapping[str, Any]
    data: Mapping[str, Any]


def draw_page(page: Page, language: str = "en", version: str = "", now_unix_s: float | None = None) -> str:
    """The whole file. `language` is the one it opens in, the other is in it as well; `version` is flatout's."""
    style = Markup("".join(_read(name) + "\n" for name in _STYLES))
    licence = f"/* uPlot\n{_read(_LICENCE)}*/\n"
    script = Markup(licence + "".join(_read(name) + "\n" for name in _SCRIPTS))
    words = {language: _chart_words(language) for language in LANGUAGES}
    template = _environment().get_template(page.template)
    html = template.render(
        **page.context,
        language=language,
        title=page.title,
        kind=page.kind,
        version=version,
        made_at=time.strftime("%Y-%m-%d %H:%M", time.localtime(now_unix_s)),
        policy=_policy(script, style),
        style=style,
        script=script,
        data=inert_json({**page.data, "words": words}),
    )
    # A path may hold bytes that are no UTF-8.
    return html.encode("utf-8", "replace").decode("utf-8")


def inert_json(value: object) -> Markup:
    """JSON that stays text wherever it stands in a page."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(str.maketrans(_INERT)))


def say(name: str, **values: object) -> Markup:
    """A fixed string of the pages in both languages."""
    return show(Message(f"page.{name}", values))


def show(words: Message) -> Markup:
    """A message in both languages. What a record holds as text is English for all."""
    return in_both(words, chinese_if_known(words))


def in_both(words: Message | str, chinese: str | None) -> Markup:
    """Escaped, and the style shows the language that is chosen; English for all where there is no Chinese."""
    shown = escape(english(words))
    if chinese is None:
        return Markup(f'<span lang="en">{shown}</span>')
    if shown == (chinese := escape(chinese)):
        return shown
    return Markup(f'<span class="in-en" lang="en">{shown}</span><span class="in-zh" lang="zh">{chinese}</span>')


def show_title(code: str, title: str) -> Markup:
    """That of a problem. One that the catalogue does not know has its own."""
    words = problem_words().get(code)
    return in_both(title, None if words is None else words.title.chinese)


def show_verdict(verdict: Verdict) -> Markup:
    return in_both(verdict.sentence, verdict_in_chinese(verdict))


def show_badge(verdict: Verdict) -> Markup:
    """What bounds the run, in one word."""
    bound = Message(f"page.bound_{verdict.bound}")
    return show(message("page.healthy", bound=bound) if verdict.healthy else bound)


def _chart_words(language: Language) -> dict[str, str]:
    """The words that the script needs, without their prefix."""
    names = (name for name in PAGE if name.startswith(_OF_CHARTS))
    return {name.removeprefix(_OF_CHARTS): render(Message(f"page.{name}"), language) for name in names}


def _policy(script: str, style: str) -> str:
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def _read(name: str) -> str:
    return files("flatout.report.html").joinpath(name).read_text(encoding="utf-8")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        autoescape=True,
        loader=jinja2.FunctionLoader(_read),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        say=say, show=show, show_title=show_title, show_verdict=show_verdict, show_badge=show_badge
    )
    return environment

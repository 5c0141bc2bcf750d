"""The site builds without a warning, its links lead somewhere, and no page asks another host for anything."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[3]
# What a browser fetches by itself; a link in text waits for a reader.
FETCHING = {
    ("img", "src"),
    ("script", "src"),
    ("link", "href"),
    ("iframe", "src"),
    ("source", "src"),
    ("form", "action"),
}


class Page(HTMLParser):
    """The references and the anchors of a page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            if (tag, name) in FETCHING and value:
                self.fetched.append(value)
            if (tag, name) == ("a", "href") and value:
                self.links.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    # Not with --quiet: a warning that is not logged does not count as one.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {file: Page(file) for file in sorted(site.rglob("*.html"))}


def test_every_page_is_there(pages: dict[Path, Page], site: Path) -> None:
    for name in ("quick-start", "quick-start.zh", "problems/in101", "reference/commands/run", "workloads/bev_seg"):
        assert site / name / "index.html" in pages
    assert (site / "reference/report.schema.json").is_file()
    assert not list(site.rglob("*.py")), "what makes the site is no part of it"


def test_links_within_the_site_lead_somewhere(pages: dict[Path, Page], site: Path) -> None:
    # 404.html is served from any folder, so its links are those of the site's root.
    broken = [
        f"{page.file.relative_to(site)}: {link}"
        for page in pages.values()
        if page.file.name != "404.html"
        for link in [*page.links, *page.fetched]
        if not _reaches(link, page.file, pages)
    ]

    assert not broken


def test_nothing_is_fetched_from_another_host(pages: dict[Path, Page], site: Path) -> None:
    away = [f"{page.file.name}: {one}" for page in pages.values() for one in page.fetched if urlsplit(one).netloc]
    away += [f"{file.name}: {one}" for file in site.rglob("*.css") for one in _of_styles(file) if urlsplit(one).netloc]
    calls = re.compile(r"(?:fetch|importScripts|import|src\s*=|open)\s*\(?\s*[\"'`](?:https?:)?//")
    away += [file.name for file in site.rglob("*.js") if calls.search(file.read_text(encoding="utf-8"))]

    assert not away


def test_no_page_names_a_folder_of_the_machine_it_was_built_on(site: Path) -> None:
    texts = (file for kind in ("*.html", "*.json", "*.css", "*.xml") for file in site.rglob(kind))

    assert not [file.name for file in texts if str(ROOT) in file.read_text(encoding="utf-8")]


def _reaches(link: str, source: Path, pages: dict[Path, Page]) -> bool:
    plain, anchor = urldefrag(link)
    if urlsplit(plain).scheme:
        return True  # a plain link to elsewhere
    target = (source.parent / unquote(plain)).resolve() if plain else source
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return False
    return not anchor or target not in pages or unquote(anchor) in pages[target].anchors


def _of_styles(file: Path) -> Iterator[str]:
    text = file.read_text(encoding="utf-8")
    for one in re.findall(r"url\(([^)]*)\)|@import\s+[\"']([^\"']+)", text):
        address = "".join(one).strip("\"'")
        if not address.startswith("data:"):
            yield address

"""Pages of the documentation site that are made from the code, so that they cannot drift from it.

mkdocs loads this file by its place (see mkdocs.yml), with its folder on the path.
"""

from __future__ import annotations

from typing import Any

import chinese_pages
import command_pages
import cross_links
import problem_pages
import project_pages
import remedy_pages
import schema_pages
import workload_tables
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_SOURCES = (problem_pages, chinese_pages, remedy_pages, command_pages, schema_pages, project_pages)


def generated() -> dict[str, str]:
    """Every file that is made at build time: {path in the site's source: text}."""
    return {path: text for source in _SOURCES for path, text in source.pages().items()}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, text in generated().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    path = page.file.src_uri
    whole = workload_tables.filled(markdown)
    return cross_links.linked(project_pages.links_within_the_site(whole, path), path)

"""The rules of the house that no linter knows."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from flatout.cli import VERBS

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (".ci", ".github", "benchmarks", "docs", "examples", "src", "tests")
ROOT_FILES = {
    ".gitignore", ".pre-commit-config.yaml", ".pre-commit-hooks.yaml", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE",
    "Makefile", "README.md", "README.zh-CN.md", "mkdocs.yml", "pyproject.toml",
}  # fmt: skip
TEXT = {".py", ".md", ".toml", ".yml", ".yaml", ".json", ".cfg", ".txt", ".html", ".css", ".js", ""}
# Spelt in two halves, so that this file does not break its own rule.
NOTE_TO_SELF = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b")
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:" + "|".join(["wo" + "rk", "ho" + "me", "Us" + "ers"]) + r")/\w")


def texts() -> Iterator[Path]:
    # In a worktree `.git` is a file, and not one of ours.
    files = [p for p in ROOT.iterdir() if p.is_file() and p.name != ".git"]
    files += [p for folder in FOLDERS for p in (ROOT / folder).rglob("*") if p.is_file()]
    return (p for p in files if p.suffix in TEXT and "__pycache__" not in p.parts)


def python_files() -> list[Path]:
    return [p for p in texts() if p.suffix == ".py"]


def relative(paths: list[Path]) -> list[str]:
    return [str(p.relative_to(ROOT)) for p in paths]


def test_nothing_that_a_script_has_written_is_kept() -> None:
    """Scripts of the corpus make their data where they are started."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout, so nobody knows what is kept")
    kept = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()

    strays = [
        name for name in kept if name not in ROOT_FILES and not name.startswith(tuple(f"{one}/" for one in FOLDERS))
    ]
    assert not strays, f"{len(strays)} files that belong nowhere, as {strays[:3]}"


def test_no_notes_to_self_in_the_tree() -> None:
    found = [p for p in texts() if NOTE_TO_SELF.search(p.read_text(errors="replace"))]

    assert not found, f"belongs in an issue: {relative(found)}"


def test_no_paths_of_the_machine_it_was_written_on() -> None:
    # Tests may name invented folders; nobody may name the real ones.
    invented = [p for p in texts() if MACHINE_PATH.search(p.read_text(errors="replace")) and "tests" not in p.parts]
    real = [p for p in texts() if f"{ROOT}/" in p.read_text(errors="replace")]

    assert not invented + real, relative(invented + real)


def test_the_licence_is_the_one_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / "LICENSE").read_text()

    assert project["license"] == "Apache-2.0"
    assert "Apache License" in text and "Version 2.0" in text


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        p
        for p in (ROOT / "src").rglob("*.py")
        # The config files of a bundled project hold settings and nothing else.
        if "configs" not in p.parts
        and (text := p.read_text()).strip()
        and not text.lstrip().startswith(('"""', 'r"""'))
    ]

    assert not silent, f"no docstring: {relative(silent)}"


def test_the_import_contracts_hold() -> None:
    script = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([script, "--no-cache"], cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout


def test_both_sides_of_the_recording_know_the_same_phases() -> None:
    # attach/ may import nothing else of flatout, so it holds a copy.
    from flatout.attach import wire
    from flatout.records.report import PHASES

    assert tuple(wire.PHASES) == PHASES


@pytest.mark.parametrize("readme", ["README.md", "README.zh-CN.md"])
def test_the_readme_names_every_verb_and_no_other(readme: str) -> None:
    rows = re.findall(r"^\| `flatout ([\w-]+)", (ROOT / readme).read_text(), flags=re.MULTILINE)

    assert sorted(rows) == sorted(VERBS)


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = sorted(int(p.name[:4]) for p in (ROOT / "docs/decisions").glob("[0-9]*.md"))

    assert numbers == list(range(1, len(numbers) + 1))

"""The pre-commit hook and the workflows in the docs: they parse, name what exists, and the hook runs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from flatout.cli.check import check
from tests.integration.running import ENVIRON
from tests.integration.test_check import CLEAN, TRAIN

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/check.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, flags=re.M | re.S)
PRE_COMMIT = Path(sys.executable).with_name("pre-commit")


def documents() -> list[Any]:
    return [yaml.safe_load(text) for kind, text in BLOCKS if kind == "yaml"]


def commands(value: Any) -> list[str]:
    """Every shell command of a workflow."""
    if isinstance(value, dict):
        own = [str(value["run"])] if "run" in value else []
        return own + [one for item in value.values() for one in commands(item)]
    return [one for item in value for one in commands(item)] if isinstance(value, list) else []


def test_the_blocks_of_the_page_parse() -> None:
    hook, *workflows = documents()

    assert hook["repos"][0]["hooks"][0]["id"] == "flatout-check"
    assert len(workflows) == 2
    for workflow in workflows:
        # YAML 1.1 reads a bare `on` as true.
        assert {"name", True, "jobs"} <= set(workflow)


def test_the_hook_on_the_page_is_the_one_we_offer() -> None:
    (offered,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    shown = documents()[0]["repos"][0]["hooks"][0]

    assert {key: offered[key] for key in shown} == shown


def test_the_page_names_only_options_that_exist() -> None:
    known = set(re.findall(r"--[a-z][\w-]+", CliRunner().invoke(check, ["--help"]).output))
    lines = [line for line in PAGE.splitlines() if "flatout check" in line]
    lines += [one for document in documents() for one in commands(document) if "flatout check" in one]
    given = {option for line in lines for option in re.findall(r"(?<!pip install )(--[a-z][\w-]+)", line)}

    assert given - known <= {"--no-deps"}


def test_findings_do_not_fail_a_scan_but_errors_do(tmp_path: Path) -> None:
    (scan,) = [one for document in documents() for one in commands(document) if "sarif" in one]
    line = scan.replace("flatout check", f"{sys.executable} -m flatout check")
    (tmp_path / "train.py").write_text(TRAIN)

    assert subprocess.run(line, shell=True, cwd=tmp_path, env=ENVIRON).returncode == 0
    assert '"SY301"' in (tmp_path / "flatout.sarif").read_text()
    (tmp_path / "pyproject.toml").write_text("[tool.flatout.check]\nselect = 3\n")
    assert subprocess.run(line, shell=True, cwd=tmp_path, env=ENVIRON, capture_output=True).returncode != 0


def test_the_hook_runs_and_fails_on_findings(tmp_path: Path) -> None:
    project, offering = tmp_path / "project", tmp_path / "offering"
    for folder in (project, offering):
        folder.mkdir()
        git(folder, "init", "--quiet")
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", offering)
    git(offering, "add", ".")
    git(offering, "commit", "--quiet", "--message", "hooks")
    # The guilty line is in a file that is not part of the commit.
    (project / "train.py").write_text(TRAIN)
    (project / "other.py").write_text("x = 1\n")
    (project / "pyproject.toml").write_text('[tool.flatout.check]\nselect = ["SY"]\n')
    git(project, "add", "other.py")

    done = try_repo(project, offering, tmp_path)
    assert done.returncode == 1 and "train.py:12:14: SY301" in done.stdout, done.stdout + done.stderr

    (project / "train.py").write_text(CLEAN)
    done = try_repo(project, offering, tmp_path)
    assert done.returncode == 0 and "Passed" in done.stdout, done.stdout + done.stderr


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def try_repo(project: Path, offering: Path, scratch: Path) -> subprocess.CompletedProcess[str]:
    environ = {
        **ENVIRON,
        "PATH": f"{Path(sys.executable).parent}:{ENVIRON['PATH']}",
        "PRE_COMMIT_HOME": str(scratch / "home"),
    }
    command = [str(PRE_COMMIT), "try-repo", str(offering), "flatout-check", "--verbose"]
    return subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, timeout=200)

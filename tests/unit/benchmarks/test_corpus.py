"""The scripts with planted problems: each says what it is, marks its line, and runs with its problem and without."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.common.corpus import Script, marks, read, scripts
from flatout.problems.catalogue import problems

SCRIPTS = scripts()
PROBLEMS = [script for script in SCRIPTS if not script.is_control]
# Different in structure, and quick; one of them is meant for a GPU and does without.
QUICK = ("in106_every_epoch", "in107_points", "ho401_small_model", "ca604_pictures", "control_gan")


def test_the_corpus_is_large_enough() -> None:
    assert len(PROBLEMS) >= 40
    assert len(SCRIPTS) - len(PROBLEMS) >= 8
    assert len({script.family for script in PROBLEMS}) == len(
        {one.family for one in problems() if one.in_run is not None}
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_says_what_it_expects_and_marks_the_line(script: Script) -> None:
    text = script.path.read_text()

    assert all(re.fullmatch(r"[A-Z]{2}\d{3}", code) for code in script.codes)
    assert script.name.startswith(script.codes[0].lower() + "_" if script.codes else "control_")
    assert '"--steps"' in text
    assert ('"--fixed"' in text) is not script.is_control
    assert bool(script.guilty) is (script.has_line and not script.is_control)


def test_the_words_before_the_facts_do_not_matter_and_unknown_facts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text('"""Something: of interest.\n\nexpects: IN101, IN102\nneeds: gpu\ncpus: 4\n"""\nx = 1  # guilty\n')
    script = read(path)

    assert (script.codes, script.needs, script.cpus) == (("IN101", "IN102"), "gpu", 4)
    assert script.guilty == {("one.py", 7)}
    assert script.suits("cuda") and not script.suits("cpu")

    path.write_text('"""One.\n\nexpects: IN101\nneeds: cpu\nblame: me\n"""\n')
    with pytest.raises(ValueError, match="expects and needs"):
        read(path)


def test_only_a_mark_at_the_end_of_a_line_counts() -> None:
    assert marks("a.py", "x = 1  # guilty\ny = 2  # guilty or not\n") == [("a.py", 1)]


RUNNER = """
import runpy, sys
for path in sys.argv[1:]:
    for arm in ([], ["--fixed"]):
        if arm and "control" in path:
            continue
        sys.path.insert(0, path.rpartition("/")[0])
        sys.argv = [path, "--steps", "3", *arm]
        runpy.run_path(path, run_name="__main__")
        print("ran", path, *arm)
"""


def test_scripts_of_different_structure_run_in_both_arms(tmp_path: Path) -> None:
    # One process for all of them: most of the time of a run of three steps is the import of torch.
    paths = [str(script.path) for script in SCRIPTS if script.name in QUICK]

    done = subprocess.run(
        [sys.executable, "-c", RUNNER, *paths], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )

    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("ran ") == 2 * len(QUICK) - 1

"""Nothing that calls itself Python makes the check fail: the standard library, torch's own source, and noise.

A sample by default; all of it with FLATOUT_WHOLE_TREES=1, as `make soak` does.
"""

from __future__ import annotations

import os
import random
import sysconfig
from pathlib import Path

import pytest

from flatout.diagnose.source_check import check_project, select_problems
from flatout.records.source import SYNTAX
from flatout.source.project.loading import load, load_texts
from flatout.words import english

_WHOLE = os.environ.get("FLATOUT_WHOLE_TREES") == "1"
_SAMPLE = 150


def sampled(root: Path) -> list[Path]:
    files = sorted(path for path in root.rglob("*.py") if "site-packages" not in path.relative_to(root).parts)
    return files if _WHOLE else random.Random(7).sample(files, min(_SAMPLE, len(files)))


def torch_folder() -> Path:
    return Path(sysconfig.get_paths()["purelib"]) / "torch"


@pytest.mark.timeout(900 if _WHOLE else 120)
@pytest.mark.parametrize("root", [Path(sysconfig.get_paths()["stdlib"]), torch_folder()], ids=["stdlib", "torch"])
def test_it_passes_through(root: Path) -> None:
    project = load(sampled(root))

    report = check_project(project, select_problems((), ()))

    assert report.files > 0.9 * len(sampled(root))
    assert not [line for line in report.trouble if "could not be judged" in english(line)]


def test_the_standard_library_trains_nothing() -> None:
    report = check_project(load(sampled(Path(sysconfig.get_paths()["stdlib"]))), select_problems((), ()))

    assert {one.code for one in report.findings} <= {SYNTAX}


def test_cut_and_shuffled_training_scripts_never_fail_it() -> None:
    chance = random.Random(11)
    corpus = Path(__file__).parents[2] / "benchmarks/corpus"
    texts = [path.read_text() for path in sorted(corpus.glob("*.py"))]
    for _ in range(120):
        lines = chance.choice(texts).splitlines(keepends=True)
        kind = chance.randrange(3)
        if kind == 0:
            text = "".join(lines)[: chance.randrange(1, 2000)]
        elif kind == 1:
            text = "".join(line for line in lines if chance.random() > 0.1)
        else:
            text = "".join(lines).replace(chance.choice("()=:.,[]"), chance.choice("()=:.,[] "), chance.randrange(1, 9))

        report = check_project(load_texts({"train.py": text}), select_problems((), ()))

        assert not report.trouble, text

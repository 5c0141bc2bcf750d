"""Files of one project find each other, wherever it lies and however they import."""

from __future__ import annotations

import textwrap
from pathlib import Path

from flatout.source.code import Code
from flatout.source.project.loading import load, load_texts

STEP = """
    def step(model, x):
        loss = model(x)
        loss.backward()
        optimizer.step()
        report(loss)
"""
LOOP = """
    for x in loader:
        step(model, x)
"""
STEPS = "model(x).backward()\n    optimizer.step()\n    utils.show(x)"


def reached(code: Code) -> set[str]:
    """Functions that run in every step."""
    return {region.function.name for region in code.training.regions if region.call_site is not None}


def test_a_package_deep_below_finds_its_way_back(tmp_path: Path) -> None:
    # GIVEN a package far from the top, whose files lie at unequal depths
    package = tmp_path / "some" / "where" / "far" / "down" / "project"
    (package / "parts" / "steps").mkdir(parents=True)
    for folder in (package, package / "parts", package / "parts" / "steps"):
        (folder / "__init__.py").write_text("")
    (package / "train.py").write_text("from .parts.steps.one import step\n" + textwrap.dedent(LOOP))
    (package / "parts" / "steps" / "one.py").write_text("from ...shown import report\n" + textwrap.dedent(STEP))
    (package / "shown.py").write_text("def report(loss):\n    print(loss)\n")

    assert reached(Code(load([package]))) >= {"step", "report"}


def test_of_two_files_by_one_name_a_script_finds_its_neighbour() -> None:
    files = {
        "vision/train.py": "import utils\n" + textwrap.dedent(LOOP).replace("step(model, x)", STEPS),
        "vision/utils.py": "def show(x):\n    print(x)\n",
        "text/utils.py": "def tell(x):\n    print(x)\n",
    }

    assert reached(Code(load_texts(files))) == {"show"}


def test_all_that_a_package_imports_from_its_files_is_its_own() -> None:
    files = {
        "tools/__init__.py": "from .data import *\nfrom .steps import *\n",
        "tools/data.py": "def batches():\n    return []\n",
        "tools/steps.py": textwrap.dedent(STEP),
        "train.py": "from tools import step\n" + textwrap.dedent(LOOP),
    }

    assert "step" in reached(Code(load_texts(files)))

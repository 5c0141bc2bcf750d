"""Importing flatout is quick and pulls nothing heavy; reading a run needs neither torch nor NVML."""

from __future__ import annotations

import subprocess
import sys

import pytest

MAX_MS = 50.0
READING = ["records", "store", "diagnose", "report"]
LOADED = "import sys; print(*sorted({n.partition('.')[0] for n in sys.modules}))"


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def import_ms() -> float:
    return float(run("import time; a = time.perf_counter(); import flatout; print(1000 * (time.perf_counter() - a))"))


@pytest.mark.timing
def test_importing_flatout_is_quick() -> None:
    # The best of a few: a busy machine is no fault of the import.
    assert min(import_ms() for _ in range(5)) < MAX_MS


def test_importing_flatout_pulls_nothing_heavy() -> None:
    loaded = run(f"import flatout; {LOADED}").split()

    assert {"torch", "numpy", "pynvml", "psutil", "rich", "click", "jinja2"} & set(loaded) == set()


@pytest.mark.parametrize("package", READING)
def test_reading_a_run_needs_neither_torch_nor_nvml(package: str) -> None:
    walk = f"""
import importlib, pkgutil
import flatout.{package} as package
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
{LOADED}
"""

    assert {"torch", "pynvml"} & set(run(walk).split()) == set()


def test_the_command_line_starts_without_torch() -> None:
    loaded = run(f"import flatout.cli; {LOADED}").split()

    assert {"torch", "numpy", "pynvml"} & set(loaded) == set()


def test_the_script_is_started_before_anything_heavy_is_imported() -> None:
    # Whatever `flatout run` imports first, the user's script waits for.
    loaded = run(f"import flatout.cli.run, flatout.app.run; {LOADED}").split()

    assert {"torch", "numpy", "pynvml", "psutil", "rich", "jinja2"} & set(loaded) == set()

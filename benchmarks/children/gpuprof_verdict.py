"""Runs a script inside gpuprof's context and prints what it has to say: `gpuprof_verdict.py SCRIPT [ARGS]...`."""

from __future__ import annotations

import contextlib
import importlib
import io
import runpy
import sys
from pathlib import Path


def main() -> None:
    script = Path(sys.argv[1])
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(script.parent))
    importlib.import_module("torch")  # it patches what is already loaded
    gpuprof = importlib.import_module("gpuprof")
    with contextlib.redirect_stdout(io.StringIO()), gpuprof.profile("corpus"):
        runpy.run_path(str(script), run_name="__main__")
    report = importlib.import_module("gpuprof.insights").analyze("gpuprof.db", 1)
    if not report["summary"]["n_steps"]:  # it then finds no bottleneck, having seen nothing
        print("verdict: no verdict: no steps seen")
    for insight in report["insights"]:
        print(f"verdict: {insight['severity']}: {insight['title']}")


if __name__ == "__main__":
    main()

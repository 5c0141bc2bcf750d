"""Removes and writes the user's files until it is killed."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

os.mkdir("rounds")
for number in itertools.count():
    shutil.rmtree("results", ignore_errors=True)
    os.makedirs("results/deep")
    Path("results/deep/2.txt").write_text("x" * 100_000)
    Path("best.new").write_text("new" * 100_000)
    os.replace("best.new", "best.pt")
    with open("metrics.csv", "a") as file:
        file.write("more\n")
    Path("rounds", str(number)).touch()

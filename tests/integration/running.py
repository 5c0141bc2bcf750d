"""How the tests of the parent process start it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import flatout

SRC = str(Path(flatout.__file__).parents[1])
ENVIRON = {k: v for k, v in os.environ.items() if not k.startswith("FLATOUT_")} | {"PYTHONPATH": SRC}
RUN = [sys.executable, "-m", "flatout", "run"]
LIMIT_S = 30.0

"""A remedy says on stderr why it is not used, in a process where flatout is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FLATOUT = Path(__file__).resolve().parents[3] / "src" / "flatout"
SCRIPT = """
import sys
from types import ModuleType

sys.modules["flatout"] = None  # importing it fails
package = ModuleType("_flatout")
package.__path__ = [sys.argv[1]]
sys.modules["_flatout"] = package
from _flatout.records.message import message
from _flatout.remedies.site import Refused

print(Refused(message("precision.no_autocast", device="mps")))
"""


def test_reasons_are_said_without_flatout_installed() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(FLATOUT)], capture_output=True, text=True, timeout=60)

    assert done.stdout == "there is no autocast for mps\n", done.stderr

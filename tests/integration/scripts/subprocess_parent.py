"""A driver script that imports no torch and trains in a subprocess of its own."""

from __future__ import annotations

import os
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.exit(subprocess.run([sys.executable, os.path.join(here, "epoch_loop.py")], check=False).returncode)

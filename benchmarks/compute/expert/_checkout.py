"""Lets an expert's script, which runs as a file, import its plain form as `benchmarks.compute.plain.NAME`.

Both files have the same name, so the folder of the plain ones on the path would not be enough: a script would import
itself.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

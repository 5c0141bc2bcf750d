"""gray_cnn as an expert would write it by hand; what stays the same is imported from the project."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[4] / "src" / "flatout" / "workloads" / "gray_cnn"))

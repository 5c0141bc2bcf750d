"""gray_cnn as an expert would write it; changes.toml lists every change with its class."""

from __future__ import annotations

import sys

from graycnn_expert.command import main

if __name__ == "__main__":
    sys.exit(main())

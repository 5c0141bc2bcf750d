"""What other tools say of a script of the corpus, beside flatout, where they can say something of it.

gpuprof patches torch while a context is open, so a child opens one around the unmodified script. TraceML's verdict
needs a call inside the training loop, which these scripts do not have: it cannot be asked.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks import peers
from benchmarks.common.bounded import run_to_end
from benchmarks.common.child import CHILDREN
from benchmarks.common.corpus import Script

PEERS = ("gpuprof",)
_MARK = "verdict: "


def of(peer: str, script: Script, env: Mapping[str, str], limit_s: float) -> str:
    """What `peer` says of the script as it is, in its own words; or why it says nothing."""
    if not peers.PYTHON.exists():
        return "not installed"
    command = [str(peers.PYTHON), str(CHILDREN / f"{peer}_verdict.py"), str(script.path), *script.arguments]
    with tempfile.TemporaryDirectory(prefix="flatout-corpus-") as here:
        printed, code = run_to_end(command, Path(here), env, limit_s)
    if code is None:
        return "not done in time"
    return said(printed) if code == 0 else f"exit {code}"


def said(output: str) -> str:
    """The marked lines of the child's output."""
    lines = [line.removeprefix(_MARK).strip() for line in output.splitlines() if line.startswith(_MARK)]
    return "; ".join(lines) or "nothing"

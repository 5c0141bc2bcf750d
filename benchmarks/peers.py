"""Make `.venv-peers`: the tools flatout is compared with, in an environment of their own over this one's torch.

python -m benchmarks.peers
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import sysconfig

from benchmarks.common.child import ROOT

PEERS = ("traceml-ai==0.5.*", "gpuprof==0.7.*")
VENV = ROOT / ".venv-peers"
PYTHON = VENV / "bin" / "python"


def make() -> None:
    """Install the peers unless that has been done; says what it does."""
    # psutil, numpy and the rest come from the borrowed environment, so that the peers find all they can use.
    borrowed = sysconfig.get_paths()["purelib"]
    key = hashlib.sha256(" ".join([*PEERS, borrowed]).encode()).hexdigest()[:16]
    ready = VENV / f".ready-{key}"
    if ready.exists():
        return
    print(f"setting up {VENV.name}: {', '.join(PEERS)}", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
    site = VENV / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (site / "borrowed.pth").write_text(borrowed + "\n")
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *PEERS], check=True)
    ready.touch()


if __name__ == "__main__":
    make()

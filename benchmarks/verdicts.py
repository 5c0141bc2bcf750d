"""What other tools say of a script of the corpus, beside flatout, and whether they name what was planted.

Each is attached in its documented way that leaves the script as it is. gpuprof patches torch while a context is open,
so a child opens one around the script. TraceML has `traceml run`: it times the steps of Lightning's and Hugging Face's
trainers, but a loop of one's own, which all these scripts have, must call `trace_step`. Without it TraceML runs, finds
its step timing insufficient and names no bottleneck: no verdict. That says nothing of how well it would judge.

A tool is right if anything it says, be it a hint, names the family of what was planted, in whatever words and place; a
hint on a healthy script is no alarm. Both are in the tools' favour: flatout has to name the problem, not its family.
"""

from __future__ import annotations

import json
import re
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.common.bounded import run_to_end
from benchmarks.common.child import CHILDREN
from benchmarks.common.corpus import Script
from benchmarks.common.scoring import Outcome, Share

PEERS = ("gpuprof", "traceml")
_MARK = "verdict: "
_NONE = "no verdict: "
_HINTS = ("low: ", "info: ")
_GRACE_S = 30.0
_OUT_OF_TIME = 124

# The words of either tool that name a family. TraceML's "residual" is by its own account logging, checkpoints,
# validation and CPU stalls: whatever a step has beside input, copies and the model.
_WORDS = {
    "IN": "waiting on the loader|Dataloader|Prefetch queue|Cache thrashing|Cold-cache|INPUT",
    "TR": "PCIe|H2D",
    "SY": "RESIDUAL",
    "HO": "Python overhead|RESIDUAL",
    "CO": ": MFU|unfused|throttling|arithmetic intensity|COMPUTE",
    "CA": "RESIDUAL",
    "ME": "Peak memory|Host memory|MEMORY|GPU MEM|HIGH RAM|RSS|HIGH PRESSURE|ALLOCATOR",
    "RA": "NCCL|STRAGGLER|IMBALANCE",
}


@dataclass(frozen=True, slots=True)
class Tally:
    """How often a peer named the family of what was planted, alarmed over a healthy script, or could not judge."""

    right: Share
    alarms: Share
    no_verdict: Share


def of(peer: str, script: Script, env: Mapping[str, str], limit_s: float) -> str:
    """What `peer` says of the script as it is, in its own words; or why it says nothing."""
    if not peers.PYTHON.exists():
        return f"{_NONE}not installed"
    with tempfile.TemporaryDirectory(prefix="flatout-corpus-") as folder:
        here = Path(folder)
        # Asked to end before it is killed: TraceML's processes are in sessions of their own, and only it ends them.
        command = ["timeout", f"{limit_s:g}", *_command(peer, script, here)]
        printed, code = run_to_end(command, here, env, limit_s + _GRACE_S)
        if code is None or code == _OUT_OF_TIME:
            return f"{_NONE}not done in time"
        if code:
            return f"{_NONE}exit {code}"
        if peer == "gpuprof":
            return said(printed)
        # Its failures do not fail the script.
        return diagnosed(json.loads(_summary(here).read_text())) if _summary(here).exists() else f"{_NONE}no summary"


def _command(peer: str, script: Script, here: Path) -> list[str]:
    if peer == "gpuprof":
        return [str(peers.PYTHON), str(CHILDREN / "gpuprof_verdict.py"), str(script.path), *script.arguments]
    options = ["--logs-dir", str(here), "--run-name", _summary(here).parent.name]
    # Its own are fixed: two runs at a time would meet there.
    options += ["--aggregator-port", str(_free_port()), "--master-port", str(_free_port())]
    return [str(peers.PYTHON.with_name("traceml")), "run", str(script.path), *options, "--args", *script.arguments]


def _summary(here: Path) -> Path:
    return here / "traceml" / "final_summary.json"


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def said(output: str) -> str:
    """The marked lines of gpuprof's child, but for hints that name nothing."""
    lines = [line.removeprefix(_MARK).strip() for line in output.splitlines() if line.startswith(_MARK)]
    return "; ".join(line for line in lines if not line.startswith(_HINTS) or families(line)) or "nothing"


def diagnosed(summary: Mapping[str, Any]) -> str:
    """TraceML's diagnosis, and whatever else its sections warn of."""
    first = summary["primary_diagnosis"]
    sections = ("step_time", "step_memory", "process", "system")
    issues = [issue for name in sections for issue in summary[name]["issues"] if issue["severity"] != "info"]
    claims = [f"{issue['severity']}: {issue['status']}" for issue in (first, *issues)]
    if first["kind"] == "INSUFFICIENT_STEP_TIME_DATA":
        claims[0] = _NONE + first["status"]
    return "; ".join(dict.fromkeys(claims))


def families(verdict: str, hints: bool = True) -> set[str]:
    """The families that a verdict names; without its hints those it raises an alarm about."""
    claims = [claim for claim in verdict.split("; ") if hints or not claim.startswith(_HINTS)]
    return {family for family, words in _WORDS.items() if any(re.search(words, claim) for claim in claims)}


def tally(peer: str, outcomes: Sequence[Outcome]) -> Tally:
    """Over the scripts that it was asked about."""
    asked = [(outcome.script, dict(outcome.peers)[peer]) for outcome in outcomes if peer in dict(outcome.peers)]
    # Any code of a script names the same cause.
    right = [bool(families(v) & {code[:2] for code in s.codes}) for s, v in asked if not s.is_control]
    alarms = [bool(families(v, hints=False)) for s, v in asked if s.is_control]
    mute = [v.startswith(_NONE) for _, v in asked]
    return Tally(*(Share(sum(each), len(each)) for each in (right, alarms, mute)))

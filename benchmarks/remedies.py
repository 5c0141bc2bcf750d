"""What each remedy does to a script that needs it: as it is, with the remedy from outside, and repaired by hand.

    python -m benchmarks.remedies                        what this machine can run
    python -m benchmarks.remedies --device cuda --only 'transfer.*' --rounds 3

The scripts are those of `benchmarks/corpus` with one planted problem each, and those of the GPU tests. All three arms
run under `flatout run`, in turn; the figures are the ratio of samples/s to the script as it is. A remedy that was not
applied, or lost speed, fails the benchmark.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common.alternate import order
from benchmarks.common.bounded import run_to_end
from benchmarks.common.child import ROOT
from benchmarks.common.corpus import CORPUS
from benchmarks.common.results import RESULTS, table, write

CHILDREN = ROOT / "benchmarks" / "children"
_GPU_SCRIPTS = ROOT / "tests" / "gpu" / "scripts"
AS_IS, REMEDIED, BY_HAND = "as it is", "remedy", "by hand"
# Less than this is within what two equal runs differ by.
_NOISE = 0.95


@dataclass(frozen=True, slots=True)
class Pair:
    """A script and the remedies for what is wrong with it."""

    remedies: tuple[str, ...]
    script: Path
    device: str = "either"
    arguments: tuple[str, ...] = ()
    # Whether `--fixed` repairs it by hand.
    has_fix: bool = True


def _of_corpus(script: str, *remedies: str, device: str = "either", steps: int | None = None) -> Pair:
    path = CORPUS / f"{script}.py"
    # Numeric remedies begin after some steps, and compile or load kernels then: a run must be long beside that.
    arguments = () if steps is None else ("--steps", str(steps))
    return Pair(remedies, path if path.exists() else CORPUS / script / "train.py", device, arguments)


PAIRS = (
    _of_corpus("in101_plain", "loader.workers=auto", "loader.persistent=true"),
    _of_corpus("in101_project", "loader.workers=auto"),
    _of_corpus("in105_short_epochs", "loader.persistent=true"),
    _of_corpus("in112_shards", "loader.prefetch=8", device="cpu"),
    _of_corpus("in110_decode_again", "loader.cache=true", device="cpu"),
    _of_corpus("ca603_save_often", "checkpoint.async=true"),
    _of_corpus("ca601_validate_often", "cadence.eval=every=4,force=true"),
    _of_corpus("ca604_histograms", "cadence.logging=10"),
    _of_corpus("ho404_collect", "gc.defer=true"),
    _of_corpus("ho404_empty_cache", "gc.defer=true", device="cuda"),
    _of_corpus("ho405_anomaly", "autograd.plain=true"),
    _of_corpus("ho401_small_model", "compile.model=reduce-overhead", device="cuda", steps=3000),
    _of_corpus("ho401_small_model", "graphs.model=true", device="cuda", steps=3000),
    _of_corpus("co501_matmul", "precision.tf32=true", device="cuda"),
    _of_corpus("co502_transformer", "precision.bf16=true", device="cuda", steps=300),
    _of_corpus("co506_channels_first", "layout.channels_last=true", device="cuda"),
    _of_corpus("tr201_pageable", "loader.pin=true", "transfer.async=true", device="cuda"),
    _of_corpus("tr203_own_batch", "loader.pin=true", device="cuda"),
    _of_corpus("tr204_blocking", "transfer.async=true", device="cuda"),
    Pair(("transfer.prefetch=true",), _GPU_SCRIPTS / "prefetch_cuda.py", "cuda", ("dict",), has_fix=False),
    # By hand: the same steps on batches that lie on the device, the ceiling.
    Pair(("loader.pin=true", "transfer.prefetch=true"), CHILDREN / "copy_beside_compute.py", "cuda"),
)


@dataclass(slots=True)
class Outcome:
    pair: Pair
    rates: dict[str, list[float]] = field(default_factory=dict)
    states: list[dict[str, Any]] = field(default_factory=list)
    failure: str = ""

    def ratio(self, arm: str) -> float | None:
        """Of samples/s, median over the rounds."""
        pairs = zip(self.rates.get(arm, ()), self.rates.get(AS_IS, ()), strict=False)
        ratios = [mine / plain for mine, plain in pairs if plain]
        return statistics.median(ratios) if ratios else None

    @property
    def is_applied(self) -> bool:
        return bool(self.states) and all(state["state"] == "applied" for state in self.states)

    @property
    def shortfall(self) -> str:
        name = f"{', '.join(self.pair.remedies)} on {_name(self.pair)}"
        ratio = self.ratio(REMEDIED)
        if self.failure:
            return f"{name}: {self.failure}"
        if not self.is_applied:
            return f"{name}: " + "; ".join(f"{state['id']} {state['state']} ({state['why']})" for state in self.states)
        if ratio is None or ratio < _NOISE:
            return f"{name}: ×{ratio or 0:.2f}"
        return ""


def measured(pair: Pair, rounds: int, limit_s: float, environ: dict[str, str]) -> Outcome:
    arms = [AS_IS, REMEDIED, *([BY_HAND] if pair.has_fix else [])]
    outcome = Outcome(pair, {arm: [] for arm in arms})
    for round_index in range(rounds):
        for arm in order(arms, round_index):
            report = _report(pair, arm, limit_s, environ)
            if isinstance(report, str):
                outcome.failure = f"{arm}: {report}"
                return outcome
            rate = report["throughput"]["samples_per_s"] or report["throughput"]["steps_per_s"]
            outcome.rates[arm].append(rate or 0.0)
            if arm == REMEDIED:
                outcome.states = report["remedies"]
    return outcome


def _report(pair: Pair, arm: str, limit_s: float, environ: dict[str, str]) -> dict[str, Any] | str:
    with tempfile.TemporaryDirectory(prefix="flatout-remedy-") as folder:
        out = Path(folder) / "report.json"
        watch = [sys.executable, "-m", "flatout", "run", "-q", "--out", f"{folder}/run", "--json", str(out)]
        if arm == REMEDIED:
            watch += [word for remedy in pair.remedies for word in ("--remedy", remedy)]
        command = [*watch, "--", sys.executable, str(pair.script), *pair.arguments]
        command += ["--fixed"] if arm == BY_HAND else []
        here = Path(folder) / "here"
        here.mkdir()
        printed, code = run_to_end(command, here, environ, limit_s)
        if code is None:
            return f"not done after {limit_s:g} s"
        if code or not out.exists():
            return f"exit {code}: " + " / ".join(printed.splitlines()[-3:])[-300:]
        report: dict[str, Any] = json.loads(out.read_text())
        return report


def _name(pair: Pair) -> str:
    return pair.script.parent.name if pair.script.name == "train.py" else pair.script.stem


def row(outcome: Outcome) -> list[str]:
    states = ", ".join(sorted({state["state"] for state in outcome.states})) or "–"
    spread = outcome.rates.get(REMEDIED, [])
    plain = outcome.rates.get(AS_IS, [])
    each = [f"{mine / bare:.2f}" for mine, bare in zip(spread, plain, strict=False) if bare]
    return [
        ", ".join(outcome.pair.remedies), _name(outcome.pair), outcome.failure or states,
        f"{statistics.median(plain):.3g}" if plain else "–", _times(outcome.ratio(REMEDIED)), " ".join(each) or "–",
        _times(outcome.ratio(BY_HAND)),
    ]  # fmt: skip


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"×{ratio:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", nargs="*", default=["*"], metavar="PATTERN", help="remedies or scripts: 'transfer.*'")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--limit", type=float, default=90.0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    if options.device == "cpu":
        environ["CUDA_VISIBLE_DEVICES"] = ""
    outcomes: list[Outcome] = []
    for pair in PAIRS:
        is_wanted = any(fnmatch.fnmatch(name, one) for name in (*pair.remedies, _name(pair)) for one in options.only)
        if not is_wanted or pair.device not in ("either", options.device):
            continue
        outcomes.append(measured(pair, options.rounds, options.limit, environ))
        print("  ".join(row(outcomes[-1])), file=sys.stderr, flush=True)
        _write(options, outcomes)
    missed = [outcome.shortfall for outcome in outcomes if outcome.shortfall]
    print("\n".join(missed) or "every remedy was applied and none lost speed")
    if missed:
        raise SystemExit(1)


def _write(options: argparse.Namespace, outcomes: list[Outcome]) -> None:
    """After every pair: a machine that goes away keeps what it has measured."""
    head = ["remedies", "script", "state", "samples/s as it is", "with", "each round", "by hand"]
    page = table(head, [row(outcome) for outcome in outcomes])
    results = {
        "outcomes": [{"rates": one.rates, "states": one.states, "remedies": one.pair.remedies} for one in outcomes]
    }
    write(f"remedies-{options.device}", results, page, options.results)


if __name__ == "__main__":
    main()

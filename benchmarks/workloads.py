"""The reference workloads before, as an expert would write them, and at their ceilings.

    python -m benchmarks.workloads [--size tiny|full] [--only NAME ...] [--data DIR] [--arms before expert ...]

Every arm but `loader` runs under `flatout run`, and its figures are that report's. `replay` is the expert's script on
batches that already lie on the device, `loader` its loader alone: no script can be faster than the slower of the two.
With a GPU and `--size full` it fails if a workload does not show its guide's symptom, or if its expert does not reach
the guide's best claim.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common.child import CHILDREN, ROOT
from benchmarks.common.results import RESULTS, table, write
from flatout.app.demo import FOLDER, SIZES

EXPERTS = ROOT / "benchmarks" / "experts"
_REPLAY, _LOADER = CHILDREN / "replay.py", CHILDREN / "loader_alone.py"
_MOST_UTIL = 70.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps of an arm at full size, and what the guide claims: samples/s of *before*, and it/s at the same batch."""

    before_steps: int
    expert_steps: int
    claim: float
    same_batch: float | None = None
    arguments: tuple[str, ...] = ()


PLANS = {
    "avatar_splat": Plan(160, 200, claim=2.8),
    "spike_deblur": Plan(40, 80, claim=2.1),
    "bev_seg": Plan(150, 150, claim=1.2),
    "heatmap_npy": Plan(12, 200, claim=10.0, arguments=("--per-file", "32", "--files", "20")),
    "gray_cnn": Plan(150, 400, claim=2.7, same_batch=1.38),
}
ARMS = ("before", "lossless", "numeric", "expert", "replay", "loader")
_TINY_STEPS = 20


@dataclass(frozen=True, slots=True)
class Figures:
    """One arm of one workload. None is "not measured"."""

    steps: int | None = None
    samples_per_s: float | None = None
    its_per_s: float | None = None
    data_ms: float | None = None
    util: float | None = None
    util_spread: float | None = None
    power: float | None = None
    sm: float | None = None
    tensor: float | None = None
    starved: float | None = None
    device_gib: float | None = None
    host_gib: float | None = None
    bound: str | None = None
    final: dict[str, float] | None = None
    # What flatout says of it, the first first: code, line, predicted gain.
    findings: tuple[str, ...] = ()
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Bench:
    size: str
    data: Path
    scratch: Path
    limit_s: float
    loader_s: float
    keep: Path | None = None

    def arm(self, name: str, arm: str) -> Figures:
        plan = PLANS[name]
        steps = plan.before_steps if arm == "before" else plan.expert_steps
        if self.size == "tiny":
            steps = _TINY_STEPS
        here = self.scratch / f"{name}-{arm}"
        here.mkdir()
        script = (FOLDER if arm == "before" else EXPERTS) / name / "train.py"
        arguments = [str(script), *self._shared(name), "--steps", str(steps), "--out", str(here / "out")]
        if arm in ("lossless", "numeric"):
            arguments += ["--allow", arm]
        if arm == "loader":
            return self._loader_alone(here, arguments)
        if arm == "replay":
            arguments = [str(_REPLAY), *arguments]
        return self._watched(here, arguments)

    def make_data(self, name: str) -> None:
        script = FOLDER / name / "train.py"
        _run([sys.executable, str(script), *self._shared(name), "--make-data-only"], self.scratch, 300)

    def _shared(self, name: str) -> list[str]:
        per_size = PLANS[name].arguments if self.size == "full" else ()
        return ["--size", self.size, "--data", str(self.data / name), *per_size]

    def _watched(self, here: Path, arguments: list[str]) -> Figures:
        report, run = here / "report.json", (self.keep or here.parent).absolute() / f"{here.name}-run"
        command = [sys.executable, "-m", "flatout", "run", "-q", "--json", str(report), "--out", str(run), "--"]
        printed, code = _run([*command, *arguments], here, self.limit_s)
        if not report.exists():
            return Figures(failure=f"exit {code}: {_tail(printed)}")
        figures = _figures(json.loads(report.read_text()), _final(printed))
        return figures if code == 0 else _with_failure(figures, code, printed)

    def _loader_alone(self, here: Path, arguments: list[str]) -> Figures:
        result = here / "loader.json"
        command = [sys.executable, str(_LOADER), "--seconds", str(self.loader_s), "--result", str(result)]
        printed, code = _run([*command, *arguments], here, self.limit_s)
        if not result.exists():
            return Figures(failure=f"exit {code}: {_tail(printed)}")
        counts = json.loads(result.read_text())
        per_s = 1 / counts["seconds"]
        batch_ms = 1e3 * counts["seconds"] / counts["batches"]
        return Figures(samples_per_s=counts["samples"] * per_s, its_per_s=counts["batches"] * per_s, data_ms=batch_ms)


def _run(command: list[str], cwd: Path, limit_s: float) -> tuple[str, int]:
    """What it printed and its exit code; one that takes too long is ended, and its report is of what it did so far."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        command, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", start_new_session=True,
    ) as process:  # fmt: skip
        try:
            printed, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            try:
                printed, _ = process.communicate(timeout=15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                printed, _ = process.communicate()
    return printed, process.returncode


def _final(printed: str) -> dict[str, float] | None:
    lines = [line for line in printed.splitlines() if line.startswith("final: ")]
    if not lines:
        return None
    return {name: float(value) for name, value in (pair.split("=") for pair in lines[-1].split()[1:])}


def _tail(printed: str) -> str:
    return " / ".join(printed.strip().splitlines()[-3:])[-400:]


def _figures(report: dict[str, Any], final: dict[str, float] | None) -> Figures:
    gpu, host = report["gpu"] or {}, report.get("host") or {}
    its = report["throughput"]["steps_per_s"]
    # What a script calls a sample: a pre-batched file is one for its loader, but holds many.
    counts = final or {}
    batch = counts["samples"] / counts["steps"] if "samples" in counts else None
    samples = its * batch if its is not None and batch else report["throughput"]["samples_per_s"]
    return Figures(
        steps=report["run"]["steps"],
        samples_per_s=samples,
        its_per_s=its,
        data_ms=report["phases"]["data"]["ms"] if report["run"]["steps"] else None,
        util=gpu.get("util_mean"),
        util_spread=gpu.get("util_spread"),
        power=gpu.get("power_share"),
        sm=gpu.get("sm_active"),
        tensor=gpu.get("tensor_active"),
        starved=gpu.get("starved_share"),
        device_gib=_gib(gpu.get("memory_peak")),
        host_gib=_gib(host.get("memory_peak")),
        bound=report["verdict"]["bound"],
        final=final,
        findings=tuple(_said(one) for one in report["findings"]),
    )


def _said(finding: dict[str, Any]) -> str:
    place, gain = finding["location"], finding["predicted_gain"]
    line = f" {Path(place['file']).name}:{place['line']}" if place else ""
    return f"{finding['code']}{line}" + (f" ×{gain['mid']:.2f}" if gain else "")


def _with_failure(figures: Figures, code: int, printed: str) -> Figures:
    values = {name: getattr(figures, name) for name in Figures.__dataclass_fields__}
    return Figures(**{**values, "failure": f"exit {code}: {_tail(printed)}"})


def _gib(count: float | None) -> float | None:
    return None if count is None else count / 2**30


def rows(name: str, arms: dict[str, Figures]) -> list[list[str]]:
    """The table's lines of one workload."""
    before = arms.get("before", Figures())
    lines = []
    for arm, f in arms.items():
        ratio = f.samples_per_s / before.samples_per_s if f.samples_per_s and before.samples_per_s else None
        metric = " ".join(f"{k} {v:.4g}" for k, v in (f.final or {}).items() if k not in ("steps", "loss", "samples"))
        lines.append([
            name, arm, _number(f.samples_per_s), f"×{ratio:.2f}" if ratio else "–", _number(f.its_per_s),
            _number(f.data_ms), _spread(f.util, f.util_spread), _percent(f.power), _percent(f.sm), _percent(f.tensor),
            _percent(f.starved), _number(f.device_gib), _number(f.host_gib), f.bound or "–",
            f"{metric} ({f.steps} steps)" if metric else f.failure or "–",
        ])  # fmt: skip
    return lines


_HEAD = [
    "workload", "arm", "samples/s", "of before", "it/s", "data ms/batch", "util %", "power", "SM", "tensor", "starved",
    "device GiB", "host GiB", "bound", "metric",
]  # fmt: skip


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f}%"


def _spread(mean: float | None, spread: float | None) -> str:
    return "–" if mean is None else f"{mean:.0f}" if spread is None else f"{mean:.0f} ± {spread:.0f}"


def shortfalls(name: str, arms: dict[str, Figures]) -> list[str]:
    """Where a workload on a GPU does not behave as its guide says."""
    plan, found = PLANS[name], [f"{name} {arm}: {f.failure}" for arm, f in arms.items() if f.failure]
    before, expert, numeric = arms.get("before"), arms.get("expert"), arms.get("numeric")
    if before and before.util is not None and before.util > _MOST_UTIL:
        found.append(f"{name}: utilisation before is {before.util:.0f}%, above {_MOST_UTIL:.0f}%")
    if before and expert and before.samples_per_s and expert.samples_per_s:
        ratio = expert.samples_per_s / before.samples_per_s
        if ratio < plan.claim:
            found.append(f"{name}: the expert reaches ×{ratio:.2f} samples/s, the guide claims ×{plan.claim}")
    if plan.same_batch and before and numeric and before.its_per_s and numeric.its_per_s:
        ratio = numeric.its_per_s / before.its_per_s
        if ratio < plan.same_batch:
            found.append(f"{name}: at the same batch ×{ratio:.2f} it/s, the guide claims ×{plan.same_batch}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--only", nargs="*", choices=sorted(PLANS), default=list(PLANS))
    parser.add_argument("--arms", nargs="*", choices=ARMS, default=list(ARMS))
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--limit", type=float, default=90.0, help="seconds for one arm")
    parser.add_argument("--loader-seconds", type=float, default=6.0)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the recordings, to diagnose them again")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    found: dict[str, dict[str, Figures]] = {}
    with tempfile.TemporaryDirectory(prefix="flatout-bench-") as scratch:
        data = (options.data or Path(scratch) / "data").resolve()
        bench = Bench(options.size, data, Path(scratch), options.limit, options.loader_seconds, options.keep)
        for name in options.only:
            bench.make_data(name)
            found[name] = {}
            for arm in options.arms:
                figures = found[name][arm] = bench.arm(name, arm)
                speed = f"{_number(figures.samples_per_s)} samples/s, {_number(figures.its_per_s)} it/s"
                print(f"{name:<13} {arm:<9} {figures.failure or speed}", file=sys.stderr, flush=True)
                print("  " + ", ".join(figures.findings), file=sys.stderr, flush=True)
                _write(options, found)
    missed = [line for name, arms in found.items() for line in shortfalls(name, arms)]
    print("\n".join(missed) or "every workload shows its symptom, every expert reaches its guide's claim")
    on_gpu = any(f.util is not None for arms in found.values() for f in arms.values())
    if missed and options.size == "full" and on_gpu:
        raise SystemExit(1)


def _write(options: argparse.Namespace, found: dict[str, dict[str, Figures]]) -> None:
    """After every arm: a machine that goes away keeps what it has measured."""
    page = table(_HEAD, [line for name, arms in found.items() for line in rows(name, arms)])
    missed = [line for name, arms in found.items() for line in shortfalls(name, arms)]
    said = [f"{name}: {', '.join(arms['before'].findings)}" for name, arms in found.items() if "before" in arms]
    notes = "".join(f"- {line}\n" for line in (*missed, *(f"said of before, {line}" for line in said)))
    write(f"workloads-{options.size}", {"workloads": found}, page + ("\n" + notes if notes else ""), options.results)


if __name__ == "__main__":
    main()

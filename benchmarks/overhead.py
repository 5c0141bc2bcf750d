"""What watching costs a training step: flatout against a bare run and against its peers, alternating in one run.

    python -m benchmarks.overhead                    trivial CPU step, all arms
    python -m benchmarks.overhead --device cuda      trivial, 2 ms and 10 ms steps on a GPU
    python -m benchmarks.overhead --gate             exit 1 if a bar is missed

Every arm of every round is a fresh process that times blocks of steps by itself. flatout is the whole product: the real
`flatout run`, with its telemetry in the parent process.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks import peers
from benchmarks.common import child, results, steps
from benchmarks.common.alternate import alternate
from benchmarks.common.stats import Estimate, added, added_percent

PEERS = ("gpuprof", "traceml", "torch.profiler")
LIMIT_US = {"cpu": 25.0, "cuda": 10.0}
LIMIT_PERCENT = {"2ms": 1.0, "10ms": 1.0}
TIMES_CHEAPER = 6.0
AGREE_WITHIN = 1.5


@dataclass(frozen=True, slots=True)
class Timing:
    """One arm in one round: wall time, CPU time of the training thread, and what flatout says of itself."""

    us_per_step: float
    cpu_us: float
    own_us: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """One kind of step: every arm against bare."""

    step: steps.Step
    us_per_step: dict[str, float]
    added_us: dict[str, Estimate]
    added_cpu_us: dict[str, Estimate]
    added_percent: dict[str, Estimate]
    rounds_us: dict[str, list[float]]
    own_us: float | None

    @property
    def is_resolved(self) -> bool:
        """Is flatout's cost known well enough to judge? Noise must neither pass a bar nor make a ratio."""
        cost = self.added_us.get("flatout")
        return cost is not None and cost.mid > 0 and cost.high - cost.low <= LIMIT_US[self.step.device]

    @property
    def cheapest_peer(self) -> str | None:
        known = [p for p in PEERS if p in self.added_us]
        return min(known, key=lambda p: self.added_us[p].mid) if known else None

    @property
    def times_cheaper(self) -> float | None:
        """How many times flatout's added time goes into the cheapest peer's."""
        if self.cheapest_peer is None or not self.is_resolved:
            return None
        return self.added_us[self.cheapest_peer].mid / self.added_us["flatout"].mid

    @property
    def disagreement(self) -> float | None:
        """The ratio of measured and self-reported cost, the larger over the smaller."""
        if not self.own_us or not self.is_resolved:
            return None
        measured = self.added_us["flatout"].mid
        return max(measured / self.own_us, self.own_us / measured)


def interpreter(arm: str) -> str | None:
    """The Python that has this arm's tool, or None."""
    if arm not in ("gpuprof", "traceml"):
        return sys.executable
    if peers.PYTHON.exists():
        return str(peers.PYTHON)
    return sys.executable if importlib.util.find_spec("traceml_ai" if arm == "traceml" else arm) else None


def command(arm: str, step: steps.Step, out: Path, scratch: Path) -> list[str]:
    """How a user of this tool would start the script."""
    python = interpreter(arm)
    assert python is not None, arm
    script = str(steps.TRAINING)
    if arm.startswith("flatout"):
        files = ["--out", str(scratch / "run"), "--json", str(scratch / "flatout.json")]
        flags = [f"--{flag}" for flag in arm.split("+")[1:]]
        return [python, "-m", "flatout", "run", *files, *flags, "--", python, script, *step.arguments(out, "bare")]
    if arm == "traceml":
        watch = [str(Path(python).with_name("traceml")), "run", script, "--logs-dir", str(scratch), "--run-name", "run"]
        return [*watch, "--args", *step.arguments(out, arm)]
    return [python, script, *step.arguments(out, arm)]


def measure(arm: str, step: steps.Step) -> Timing:
    """One fresh process of one arm, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="flatout-bench-") as folder:
        scratch = Path(folder)
        out = scratch / "timing.json"
        child.run(command(arm, step, out, scratch), cwd=scratch)
        own_us = None
        if arm.startswith("flatout"):
            overhead = child.read_json(scratch / "flatout.json")["overhead"]
            assert isinstance(overhead, dict)
            own_us = overhead["us_per_step"]
        return Timing(steps.median_us(out), steps.median_us(out, "cpu_us_per_step"), own_us)


def compare(step: steps.Step, arms: list[str], rounds: int) -> Comparison:
    """All arms, alternating, paired with the bare run of the same round."""
    timings = alternate(arms, rounds, lambda arm, _: measure(arm, step), lambda t: f"{t.us_per_step:9.1f} us/step")
    rounds_us = {arm: [t.us_per_step for t in ts] for arm, ts in timings.items()}
    rounds_cpu_us = {arm: [t.cpu_us for t in ts] for arm, ts in timings.items()}
    others = [arm for arm in arms if arm != "bare"]
    own = [t.own_us for t in timings.get("flatout", []) if t.own_us is not None]
    return Comparison(
        step=step,
        us_per_step={arm: statistics.median(us) for arm, us in rounds_us.items()},
        added_us={arm: added(rounds_us[arm], rounds_us["bare"]) for arm in others},
        added_cpu_us={arm: added(rounds_cpu_us[arm], rounds_cpu_us["bare"]) for arm in others},
        added_percent={arm: added_percent(rounds_us[arm], rounds_us["bare"]) for arm in others},
        rounds_us=rounds_us,
        own_us=statistics.median(own) if own else None,
    )


def failures(c: Comparison) -> list[str]:
    """The bars this comparison misses, each as a sentence."""
    if "flatout" not in c.added_us:
        return [f"{c.step.name}: flatout was not among the arms"]
    found = []
    cost_us = c.added_us["flatout"].mid
    if c.step.name == "trivial" and not c.is_resolved:
        low, high = c.added_us["flatout"].low, c.added_us["flatout"].high
        found.append(
            f"flatout's cost is not resolved ({low:+.0f} to {high:+.0f} us): more rounds, or a quieter machine"
        )
    if c.step.name == "trivial" and c.cheapest_peer is None:
        found.append("no peer was measured, so nothing is known about how flatout compares")
    if c.step.name == "trivial" and c.own_us is None:
        found.append("flatout did not report its own cost")
    if c.step.name == "trivial" and cost_us > LIMIT_US[c.step.device]:
        found.append(f"flatout adds {cost_us:.1f} us a step, more than {LIMIT_US[c.step.device]:g}")
    if c.step.name == "trivial" and c.times_cheaper is not None and c.times_cheaper < TIMES_CHEAPER:
        found.append(f"flatout is {c.times_cheaper:.1f} times cheaper than {c.cheapest_peer}, not {TIMES_CHEAPER:g}")
    # Only the trivial step tells: in longer ones a GPU hides the cost, or noise exceeds it.
    if c.step.name == "trivial" and c.disagreement is not None and c.disagreement > AGREE_WITHIN:
        found.append(f"flatout reports {c.own_us:.1f} us of its own, {cost_us:.1f} were measured")
    limit_percent = LIMIT_PERCENT.get(c.step.name)
    # The upper bound is what a user may rely on, and a noisy run cannot pass by luck.
    most_percent = c.added_percent["flatout"].high
    if limit_percent is not None and most_percent > limit_percent:
        found.append(f"{c.step.name}: flatout adds up to {most_percent:.2f}%, more than {limit_percent:g}%")
    return found


def page(c: Comparison) -> str:
    """One comparison as Markdown."""
    rows = [["bare", f"{c.us_per_step['bare']:.1f}", "", "", "", ""]]
    for arm, cost in c.added_us.items():
        share, cpu = c.added_percent[arm], c.added_cpu_us[arm]
        rows.append(
            [
                arm,
                f"{c.us_per_step[arm]:.1f}",
                f"{cost.mid:+.1f} ({cost.low:+.1f} to {cost.high:+.1f})",
                f"{cost.smallest:+.1f} to {cost.largest:+.1f}",
                f"{cpu.mid:+.1f}",
                f"{share.mid:+.2f}% ({share.low:+.2f} to {share.high:+.2f})",
            ]
        )
    head = ["arm", "µs per step", "added µs, 95% interval", "range over rounds", "added CPU µs", "added"]
    lines = [
        f"## {c.step.name} step on {c.step.device}, {len(c.rounds_us['bare'])} rounds\n",
        results.table(head, rows),
    ]
    if c.times_cheaper is not None:
        lines.append(f"flatout costs {c.times_cheaper:.1f} times less than the cheapest peer ({c.cheapest_peer}).")
    if c.disagreement is not None:
        lines.append(f"flatout's own account: {c.own_us:.1f} µs per step, {c.disagreement:.2f} times off the measured.")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--arms", nargs="+", help="default: all; flatout+no-lines adds a flag")
    parser.add_argument("--steps", nargs="+", choices=steps.KINDS, help="default: trivial on cpu, all on cuda")
    parser.add_argument("--gate", action="store_true", help="exit 1 if a bar is missed")
    parser.add_argument("--results", type=Path, default=results.RESULTS, metavar="DIR")
    o = parser.parse_args()

    wanted = o.arms or ["bare", "flatout", *PEERS]
    arms = [arm for arm in wanted if interpreter(arm)]
    if "bare" not in arms:
        arms.insert(0, "bare")
    for absent in set(wanted) - set(arms):
        print(f"{absent} is not installed (python -m benchmarks.peers): left out", file=sys.stderr)
    kinds = o.steps or (["trivial"] if o.device == "cpu" else list(steps.KINDS))
    with tempfile.TemporaryDirectory(prefix="flatout-bench-") as folder:
        comparisons = [compare(steps.make(kind, o.device, Path(folder)), arms, o.rounds) for kind in kinds]

    missed = [sentence for c in comparisons for sentence in failures(c)]
    pages = "\n".join(page(c) for c in comparisons)
    pages += "".join(f"\nMissed: {sentence}." for sentence in missed)
    pages += "" if missed else "\nAll bars reached."
    print(pages)
    named = ["torch", "flatout", "traceml-ai", "gpuprof"]
    data = {"versions": results.versions(*named), "peers": peers.PEERS, "comparisons": comparisons, "missed": missed}
    print(f"written: {results.write('overhead', data, pages, o.results)}", file=sys.stderr)
    return 1 if o.gate and missed else 0


if __name__ == "__main__":
    sys.exit(main())

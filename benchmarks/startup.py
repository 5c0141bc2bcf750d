"""What `flatout run` adds before a script's first line, until its first step, and to its whole life; `import flatout`.

python -m benchmarks.startup [--pairs 15] [--gate]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import child, results
from benchmarks.common.alternate import alternate
from benchmarks.common.stats import Estimate, added, estimate

SCRIPT = child.CHILDREN / "first_steps.py"
IMPORT = "import time; a = time.perf_counter(); import flatout; b = time.perf_counter(); import sys; \
assert 'torch' not in sys.modules; print(1000 * (b - a))"
LIMIT_BEFORE_TORCH_MS = 150.0
LIMIT_IN_ALL_MS = 300.0
LIMIT_IMPORT_MS = 50.0


@dataclass(frozen=True, slots=True)
class Start:
    """Milliseconds from the launch of the command to the script's marks and to the end of the command."""

    first_line_ms: float
    first_step_ms: float
    whole_ms: float


def measure(arm: str) -> Start:
    """One launch, bare or watched."""
    with tempfile.TemporaryDirectory(prefix="flatout-bench-") as folder:
        scratch = Path(folder)
        marks_file = scratch / "marks.json"
        script = [sys.executable, str(SCRIPT), str(marks_file)]
        watch = [sys.executable, "-m", "flatout", "run", "--out", str(scratch / "run"), "--"]
        ended = child.run([*watch, *script] if arm == "flatout" else script, cwd=scratch)
        marks = {name: float(str(value)) for name, value in child.read_json(marks_file).items()}
        # perf_counter is CLOCK_MONOTONIC on Linux: the child's marks and ours are on one time line.
        return Start(
            first_line_ms=1000 * (marks["began_s"] - ended.started_s),
            first_step_ms=1000 * (marks["stepped_s"] - ended.started_s),
            whole_ms=1000 * (ended.ended_s - ended.started_s),
        )


def import_ms(_: str, __: int) -> float:
    """`import flatout` in a fresh interpreter; it must not pull torch in."""
    return float(child.run([sys.executable, "-c", IMPORT], cwd=child.ROOT).output)


def row(name: str, value: Estimate, limit_ms: float | None) -> list[str]:
    """A line of the result's table."""
    bar = f"< {limit_ms:g}" if limit_ms else "–"
    return [name, f"{value.mid:.0f}", f"{value.low:.0f} to {value.high:.0f}", bar]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--gate", action="store_true", help="exit 1 if a bar is missed")
    parser.add_argument("--results", type=Path, default=results.RESULTS, metavar="DIR")
    o = parser.parse_args()

    starts = alternate(
        ["bare", "flatout"],
        o.pairs,
        lambda arm, _: measure(arm),
        lambda s: f"first step after {s.first_step_ms:.0f} ms",
    )
    imports = alternate(["import flatout"], o.pairs, import_ms, lambda ms: f"{ms:.1f} ms")["import flatout"]
    bare, watched = starts["bare"], starts["flatout"]
    before = added([s.first_line_ms for s in watched], [s.first_line_ms for s in bare])
    in_all = added([s.first_step_ms for s in watched], [s.first_step_ms for s in bare])
    whole = added([s.whole_ms for s in watched], [s.whole_ms for s in bare])
    importing = estimate(imports)

    bars = [
        ("added before the script's first line", before, LIMIT_BEFORE_TORCH_MS),
        ("added until the first step is done", in_all, LIMIT_IN_ALL_MS),
        ("`import flatout`", importing, LIMIT_IMPORT_MS),
    ]
    missed = [f"{name}: {value.mid:.0f} ms, not < {limit:g}" for name, value, limit in bars if value.mid >= limit]
    rows = [row(*bar) for bar in bars] + [row("added to the whole run, verdict included", whole, None)]
    page = results.table(["", "ms, median", "95% interval", "bar"], rows)
    page += "".join(f"\nMissed: {sentence}." for sentence in missed)
    print(page)
    data = {
        "versions": results.versions("torch", "flatout"),
        "pairs": o.pairs,
        "added_before_first_line_ms": before,
        "added_until_first_step_ms": in_all,
        "added_to_whole_run_ms": whole,
        "import_ms": importing,
        "missed": missed,
    }
    print(f"written: {results.write('startup', data, page, o.results)}", file=sys.stderr)
    return 1 if o.gate and missed else 0


if __name__ == "__main__":
    sys.exit(main())

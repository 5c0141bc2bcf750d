"""How long `flatout report` takes on a run of a million steps, as a user waits for it: from the command to the file.

    python -m benchmarks.report                      a million steps: watched first (some minutes), then reported
    python -m benchmarks.report --steps 100000       a shorter run
    python -m benchmarks.report --run FOLDER         one that is there already
    python -m benchmarks.report --gate               exit 1 if a bar is missed

The run is a real one, recorded by `flatout run`. Each report is a fresh process that reads the whole store.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import child, results
from benchmarks.common.stats import Estimate, estimate

TRAINING = child.CHILDREN / "long_run.py"
STEPS = 1_000_000
LIMIT_S = 5.0
LIMIT_BYTES = 3 << 20
_SAMPLES = 10
_PATIENCE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Made:
    """One report: seconds by the clock, seconds of CPU, and how large its file is."""

    wall_s: float
    cpu_s: float
    page_bytes: int


def watched(scratch: Path, steps: int) -> Path:
    """A fresh run of so many steps."""
    script = [sys.executable, str(TRAINING), str(scratch / "memory.json"), str(steps), str(_SAMPLES)]
    watch = [sys.executable, "-m", "flatout", "run", "--out", str(scratch / "run"), "--quiet", "--"]
    child.run([*watch, *script], cwd=scratch, timeout_s=_PATIENCE_S)
    return scratch / "run"


def made(run: Path, file: Path) -> Made:
    before_s = _children_cpu_s()
    ended = child.run([sys.executable, "-m", "flatout", "report", str(run), "-o", str(file)], cwd=file.parent)
    return Made(ended.ended_s - ended.started_s, _children_cpu_s() - before_s, file.stat().st_size)


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def failures(wall: Estimate, page_bytes: int) -> list[str]:
    found = []
    if wall.mid >= LIMIT_S:
        found.append(f"a report takes {wall.mid:.1f} s, not < {LIMIT_S:g}")
    if page_bytes > LIMIT_BYTES:
        found.append(f"its file has {page_bytes / 2**20:.1f} MiB, more than {LIMIT_BYTES / 2**20:g}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--run", type=Path, metavar="FOLDER", help="report this run instead of making one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gate", action="store_true", help="exit 1 if a bar is missed")
    parser.add_argument("--results", type=Path, default=results.RESULTS, metavar="DIR")
    o = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="flatout-bench-") as folder:
        run = o.run.absolute() if o.run else watched(Path(folder), o.steps)
        stored_bytes = sum(file.stat().st_size for file in run.rglob("*") if file.is_file())
        rounds = []
        for number in range(o.rounds):
            rounds.append(made(run, Path(folder, "page.html")))
            print(f"round {number + 1}/{o.rounds}  {rounds[-1].wall_s:.2f} s", file=sys.stderr, flush=True)
    wall, cpu = estimate([one.wall_s for one in rounds]), estimate([one.cpu_s for one in rounds])
    page_bytes = max(one.page_bytes for one in rounds)
    missed = failures(wall, page_bytes)
    rows = [
        ["from the command to the file", f"{wall.mid:.2f} s", f"{wall.smallest:.2f} to {wall.largest:.2f}", "< 5 s"],
        ["CPU time", f"{cpu.mid:.2f} s", f"{cpu.smallest:.2f} to {cpu.largest:.2f}", "–"],
        ["the file", f"{page_bytes / 1024:,.0f} KiB", "", "≤ 3 MiB"],
    ]
    what = "a stored run" if o.run else f"{o.steps:,} steps"
    text = f"## {what}, {stored_bytes / 1e6:,.0f} MB on disk, {o.rounds} rounds\n\n"
    text += results.table(["", "median", "range", "bar"], rows)
    text += "".join(f"\nMissed: {sentence}." for sentence in missed) or "\nAll bars reached.\n"
    print(text)
    data = {"versions": results.versions("torch", "flatout"), "rounds": rounds, "wall_s": wall, "missed": missed}
    print(f"written: {results.write('report', data, text, o.results)}", file=sys.stderr)
    return 1 if o.gate and missed else 0


if __name__ == "__main__":
    sys.exit(main())

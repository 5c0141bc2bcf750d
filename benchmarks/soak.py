"""A run of a million steps under `flatout run`: memory, bytes on disk per step, seconds to the verdict and a report.

python -m benchmarks.soak [--steps 1000000] [--gate]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import child, results
from benchmarks.common.stats import slope_per_item

SCRIPT = child.CHILDREN / "long_run.py"
SAMPLES = 100
LIMIT_BYTES_PER_STEP = 200.0
LIMIT_SUMMARY_S = 5.0
LIMIT_REPORT_S, LIMIT_REPORT_MB = 5.0, 3.0
# "Flat": over the whole run memory grows by less than what a few loader epochs move it about anyway.
LIMIT_GROWTH_MB = 4.0


@dataclass(frozen=True, slots=True)
class Soak:
    """What the run came to. Memory is the training process's; the first tenth of it is warm-up."""

    steps: int
    us_per_step: float
    rss_mb: list[float]
    growth_mb: float
    recording_bytes: int
    bytes_per_step: float
    summary_s: float
    own_us_per_step: float | None
    # `flatout report` of it, from its start to its end, and the size of the page.
    report_s: float
    report_mb: float


def soak(steps: int, scratch: Path) -> Soak:
    """Run to the end and look at what is left."""
    out, run_dir = scratch / "marks.json", scratch / "run"
    watch = [sys.executable, "-m", "flatout", "run", "--out", str(run_dir), "--json", str(scratch / "flatout.json")]
    script = [sys.executable, str(SCRIPT), str(out), str(steps), str(SAMPLES)]
    ended = child.run([*watch, "--", *script], cwd=scratch, timeout_s=7200)
    marks = child.read_json(out)
    memory = marks["rss_bytes"]
    assert isinstance(memory, list)
    rss_mb = [value / 2**20 for value in memory]
    steady = rss_mb[len(rss_mb) // 10 :]
    # Blocks really taken, so that a sparse or preallocated file cannot flatter or slander.
    taken = sum(f.stat().st_blocks * 512 for f in run_dir.rglob("*") if f.is_file())
    overhead = child.read_json(scratch / "flatout.json")["overhead"]
    assert isinstance(overhead, dict)
    began_s, ended_s = float(str(marks["started_s"])), float(str(marks["ended_s"]))
    page_file = scratch / "page.html"
    made = child.run([sys.executable, "-m", "flatout", "report", str(run_dir), "-o", str(page_file)], cwd=scratch)
    return Soak(
        steps=steps,
        us_per_step=1e6 * (ended_s - began_s) / steps,
        rss_mb=[round(mb, 2) for mb in rss_mb],
        growth_mb=slope_per_item(steady) * len(steady),
        recording_bytes=taken,
        bytes_per_step=taken / steps,
        summary_s=ended.ended_s - ended_s,
        own_us_per_step=overhead["us_per_step"],
        report_s=made.ended_s - made.started_s,
        report_mb=page_file.stat().st_size / 2**20,
    )


def failures(s: Soak) -> list[str]:
    """The bars this run misses, each as a sentence."""
    found = []
    if s.growth_mb > LIMIT_GROWTH_MB:
        found.append(f"memory grew by {s.growth_mb:.1f} MB, more than {LIMIT_GROWTH_MB:g}")
    if s.bytes_per_step > LIMIT_BYTES_PER_STEP:
        found.append(f"{s.bytes_per_step:.0f} bytes a step, more than {LIMIT_BYTES_PER_STEP:g}")
    if s.summary_s >= LIMIT_SUMMARY_S:
        found.append(f"the verdict took {s.summary_s:.1f} s, not < {LIMIT_SUMMARY_S:g}")
    if s.report_s >= LIMIT_REPORT_S:
        found.append(f"the report took {s.report_s:.1f} s, not < {LIMIT_REPORT_S:g}")
    if s.report_mb > LIMIT_REPORT_MB:
        found.append(f"the report has {s.report_mb:.1f} MB, more than {LIMIT_REPORT_MB:g}")
    return found


def page(s: Soak, missed: list[str]) -> str:
    """The result as Markdown."""
    rows = [
        ["steps", f"{s.steps:,}", ""],
        ["µs per step", f"{s.us_per_step:.0f}", ""],
        ["memory of the training process", f"{s.rss_mb[0]:.0f} → {s.rss_mb[-1]:.0f} MB", ""],
        ["its growth after warm-up", f"{s.growth_mb:+.2f} MB", f"≤ {LIMIT_GROWTH_MB:g}"],
        ["bytes on disk per step", f"{s.bytes_per_step:.1f}", f"≤ {LIMIT_BYTES_PER_STEP:g}"],
        ["script's end to flatout's end, verdict shown", f"{s.summary_s:.1f} s", f"< {LIMIT_SUMMARY_S:g}"],
        ["flatout report, start to end", f"{s.report_s:.1f} s", f"< {LIMIT_REPORT_S:g}"],
        ["its page", f"{s.report_mb:.2f} MB", f"≤ {LIMIT_REPORT_MB:g}"],
    ]
    return results.table(["", "measured", "bar"], rows) + "".join(f"\nMissed: {sentence}." for sentence in missed)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--gate", action="store_true", help="exit 1 if a bar is missed")
    parser.add_argument("--results", type=Path, default=results.RESULTS, metavar="DIR")
    o = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flatout-bench-") as folder:
        result = soak(o.steps, Path(folder))
    missed = failures(result)
    text = page(result, missed)
    print(text)
    data = {"versions": results.versions("torch", "flatout"), "soak": result, "missed": missed}
    print(f"written: {results.write('soak', data, text, o.results)}", file=sys.stderr)
    return 1 if o.gate and missed else 0


if __name__ == "__main__":
    sys.exit(main())

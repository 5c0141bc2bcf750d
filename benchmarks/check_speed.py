"""How long `flatout check` takes for 1,000 Python files, start-up included.

python -m benchmarks.check_speed [--files 1000] [--rounds 3] [--tree DIR] [--gate]

The files are a sample, the same each time, of the packages installed beside us: torch and the frameworks built on it,
so nearly every file speaks of tensors. That is the dearest kind of tree: files without any are parsed and left.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

from benchmarks.common import child, results
from benchmarks.common.stats import estimate

LIMIT_S = 10.0
PACKAGES = ("torch", "lightning", "transformers", "accelerate")


def sample(tree: Path | None, count: int) -> list[tuple[Path, Path]]:
    """Files and the roots they are copied relative to."""
    site = Path(sysconfig.get_paths()["purelib"])
    roots = [tree] if tree is not None else [site / name for name in PACKAGES if (site / name).is_dir()]
    known = sorted((path, root.parent) for root in roots for path in root.rglob("*.py"))
    return random.Random(5).sample(known, min(count, len(known)))


def copied(chosen: list[tuple[Path, Path]], folder: Path) -> int:
    """Bytes copied."""
    size = 0
    for path, root in chosen:
        target = folder / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        size += target.stat().st_size
    return size


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tree", type=Path, help="take the files from here")
    parser.add_argument("--gate", action="store_true", help="exit 1 if the bar is missed")
    parser.add_argument("--results", type=Path, default=results.RESULTS, metavar="DIR")
    o = parser.parse_args()

    seconds = []
    with tempfile.TemporaryDirectory(prefix="flatout-bench-") as scratch:
        folder = Path(scratch) / "tree"
        chosen = sample(o.tree, o.files)
        size = copied(chosen, folder)
        command = [sys.executable, "-m", "flatout", "check", "--format", "json", "-q", str(folder)]
        # Findings make it leave with 1, which is no failure here.
        quiet = [sys.executable, "-c", f"import subprocess, sys; sys.exit(subprocess.call({command!r}) > 1)"]
        for round_ in range(o.rounds):
            ended = child.run(quiet, cwd=Path(scratch))
            seconds.append(ended.ended_s - ended.started_s)
            print(f"round {round_ + 1}: {seconds[-1]:.2f} s", file=sys.stderr)
    taken = estimate(seconds)
    missed = [f"{len(chosen)} files took {taken.mid:.1f} s, not < {LIMIT_S:g}"] if taken.mid >= LIMIT_S else []
    rows = [
        [
            f"{len(chosen):,}",
            f"{size / 1e6:.1f}",
            f"{taken.mid:.1f}",
            f"{len(chosen) / taken.mid:.0f}",
            f"< {LIMIT_S:g}",
        ]
    ]
    page = results.table(["files", "MB", "seconds, median", "files/s", "bar"], rows)
    page += "".join(f"\nMissed: {sentence}." for sentence in missed)
    print(page)
    data = {"files": len(chosen), "bytes": size, "rounds": o.rounds, "seconds": taken, "missed": missed}
    print(f"written: {results.write('check_speed', data, page, o.results)}", file=sys.stderr)
    return 1 if o.gate and missed else 0


if __name__ == "__main__":
    sys.exit(main())

"""How long `flatout check` takes for 1,000 Python files, start-up included, and how long torchfix takes beside it.

    python -m benchmarks.check_speed [--files 1000] [--rounds 3] [--tree DIR] [--gate]
    python -m benchmarks.check_speed --torchfix PATH_TO_BIN [--few 200]

The files are a sample, the same each time, of the packages installed beside us: torch and the frameworks built on it,
so nearly every file speaks of tensors. That is the dearest kind of tree: files without any are parsed and left.

torchfix (pip install torchfix, in an environment of its own) reads a few files a second, so both read the first
`--few` of the sample, in turn. It takes all processors, as it does by default; we take one.
"""

from __future__ import annotations

import argparse
import random
import resource
import shutil
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import child, results
from benchmarks.common.alternate import alternate
from benchmarks.common.stats import Estimate, estimate

LIMIT_S = 10.0
TIMES_FASTER = 25.0
PACKAGES = ("torch", "lightning", "transformers", "accelerate")


@dataclass(frozen=True, slots=True)
class Took:
    """Of one run: what passed on the clock, and what all processors together spent."""

    wall_s: float
    cpu_s: float


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


def timed(command: list[str], folder: Path) -> Took:
    """Run to the end. Findings make both tools leave with 1, which is no failure here."""
    quiet = [sys.executable, "-c", f"import subprocess, sys; sys.exit(subprocess.call({command!r}) > 1)"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = child.run(quiet, cwd=folder, timeout_s=3600.0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(ended.ended_s - ended.started_s, cpu_s)


def ratio(theirs: list[Took], ours: list[Took]) -> Estimate:
    """How many times faster, paired round by round."""
    return estimate([a.wall_s / b.wall_s for a, b in zip(theirs, ours, strict=True)])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--few", type=int, default=200, help="files that torchfix reads too")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tree", type=Path, help="take the files from here")
    parser.add_argument("--torchfix", type=Path, metavar="BIN", help="the torchfix to compare with")
    parser.add_argument("--gate", action="store_true", help="exit 1 if a bar is missed")
    parser.add_argument("--results", type=Path, default=results.RESULTS, metavar="DIR")
    o = parser.parse_args()

    chosen = sample(o.tree, o.files)
    few = chosen[: o.few]
    flatout = [sys.executable, "-m", "flatout", "check", "--format", "json", "-q"]
    with tempfile.TemporaryDirectory(prefix="flatout-bench-") as scratch:
        size = copied(chosen, Path(scratch) / "tree")
        commands = {"flatout": [*flatout, "tree"]}
        if o.torchfix is not None:
            copied(few, Path(scratch) / "few")
            commands["flatout, few"] = [*flatout, "few"]
            commands["torchfix, few"] = [str(o.torchfix.absolute()), "few"]
        took = alternate(
            list(commands),
            o.rounds,
            lambda name, _: timed(commands[name], Path(scratch)),
            lambda command: f"{command.wall_s:.2f} s, {command.cpu_s:.2f} s of processors",
        )

    counts = {"flatout": len(chosen), "flatout, few": len(few), "torchfix, few": len(few)}
    walls = {name: estimate([run.wall_s for run in runs]) for name, runs in took.items()}
    processors = {name: estimate([run.cpu_s for run in runs]) for name, runs in took.items()}
    # The quickest round is what the tool needs; the others are what else the machine had to do.
    missed = []
    if walls["flatout"].smallest >= LIMIT_S:
        missed.append(f"{len(chosen)} files took {walls['flatout'].smallest:.1f} s, not < {LIMIT_S:g}")
    rows = [
        [
            name,
            f"{counts[name]:,}",
            f"{walls[name].mid:.1f}",
            f"{walls[name].smallest:.1f}",
            f"{processors[name].smallest:.1f}",
            f"{counts[name] / walls[name].smallest:.0f}",
        ]
        for name in commands
    ]
    head = ["tool", "files", "seconds, median", "seconds, quickest", "of processors", "files/s"]
    page = f"{size / 1e6:.1f} MB in {len(chosen):,} files, {o.rounds} rounds. Bar: < {LIMIT_S:g} s.\n\n"
    page += results.table(head, rows)
    faster = None
    if o.torchfix is not None:
        faster = ratio(took["torchfix, few"], took["flatout, few"])
        spent = processors["torchfix, few"].smallest / processors["flatout, few"].smallest
        page += (
            f"\nOn the same {len(few)} files flatout is {faster.mid:.0f} times faster than torchfix "
            f"({faster.smallest:.0f} to {faster.largest:.0f} over the rounds; bar: {TIMES_FASTER:g}), "
            f"and {spent:.0f} times in time of processors.\n"
        )
        if faster.mid < TIMES_FASTER:
            missed.append(f"{faster.mid:.0f} times faster than torchfix, not {TIMES_FASTER:g}")
    page += "".join(f"\nMissed: {sentence}." for sentence in missed)
    print(page)
    data = {
        "files": len(chosen),
        "few": len(few),
        "bytes": size,
        "rounds": o.rounds,
        "seconds": walls,
        "processor_seconds": processors,
        "times_faster": faster,
        "missed": missed,
    }
    print(f"written: {results.write('check_speed', data, page, o.results)}", file=sys.stderr)
    return 1 if o.gate and missed else 0


if __name__ == "__main__":
    sys.exit(main())

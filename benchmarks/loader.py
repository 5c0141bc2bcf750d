"""flatout.DataLoader, which finds its setting while it runs, against the best of torch's loader and of its peers.

    python -m benchmarks.loader             three datasets, the whole grid
    python -m benchmarks.loader --gate      exit 1 if a bar is missed

All settings are tried once; the best three of torch's and the best of each peer then run in turn with flatout's. Every
run is a fresh process that times one pass over the data, in order, after its loader has warmed up.

The peers: SPDL and torchdata, which fetch samples in threads; WebDataset and LitData, which read shards in workers. The
shards are written before and hold what a sample is made from; the same function makes it. That is not quite like for
like: they read files where the others have their bytes in memory, and give samples in the order of shards and workers,
so a slow one holds up its own worker only.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import child, results
from benchmarks.common.alternate import alternate
from benchmarks.common.stats import Estimate, estimate

SCRIPT = child.CHILDREN / "feeding.py"
DATASETS = ("cpu-heavy", "latency-bound", "straggler-laden")
# Of flatout's pace over that of torch's best setting.
BARS = {"cpu-heavy": 0.97, "latency-bound": 0.97, "straggler-laden": 1.3}
MOST_STEPS = 200
WORKERS = (1, 2, 4, 8, 16, 32)
PREFETCH = (2, 4, 8)
PEERS = ("spdl==0.8.0", "spdl-core==0.8.0", "torchdata==0.11.0", "webdataset==1.0.2", "litdata==0.2.76")
# What these need beyond this environment; torchvision, which LitData asks for as well, is not used here.
NEEDED = ("braceexpand", "boto3", "botocore", "jmespath", "s3transfer", "obstore", "tifffile")
PEER_ARMS = ("spdl", "torchdata", "webdataset", "litdata")
PEER_WORKERS = (2, 8, 32)
VENV = child.ROOT / ".venv-peers-loader"
FINALISTS = 3
# When settings are tried out, each worker gets about as much to do.
SAMPLES_PER_WORKER = 100
ALL_SAMPLES = 1 << 30


@dataclass(frozen=True, slots=True)
class Pass:
    """One timed pass over the data."""

    samples_per_s: float
    workers: int
    settled_at: int | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One dataset: paces of all arms, and flatout's over the best of torch's."""

    tried: dict[str, float]
    paces: dict[str, list[float]]
    best: str
    ratio: Estimate
    settled_at: list[int | None]
    workers: list[int]


def peers_python() -> Path:
    """The interpreter of an environment that holds the peers, over this one's torch; made when it is missing."""
    borrowed = sysconfig.get_paths()["purelib"]
    key = hashlib.sha256(" ".join([*PEERS, *NEEDED, borrowed]).encode()).hexdigest()[:16]
    ready, python = VENV / f".ready-{key}", VENV / "bin" / "python"
    if not ready.exists():
        print(f"setting up {VENV.name}: {', '.join(PEERS)}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
        site = VENV / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        (site / "borrowed.pth").write_text(borrowed + "\n")
        # Without what they depend on: torch is not to be installed a second time.
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*install, *PEERS, *NEEDED], check=True)
        ready.touch()
    return python


def measure(dataset: str, setting: str, samples: int) -> Pass:
    """`setting`: the arm's name, workers and batches ahead, as in `torch 8 2`."""
    arm, workers, prefetch = setting.split()
    python = str(peers_python()) if arm in PEER_ARMS else sys.executable
    with tempfile.TemporaryDirectory(prefix="flatout-bench-") as folder:
        out = Path(folder) / "pass.json"
        child.run([python, str(SCRIPT), str(out), dataset, arm, workers, prefetch, str(samples)], cwd=Path(folder))
        told = child.read_json(out)
    settled = told["settled_at"]
    return Pass(float(str(told["samples_per_s"])), int(str(told["workers"])), int(str(settled)) if settled else None)


def try_out(dataset: str, arms: dict[str, list[str]]) -> tuple[dict[str, float], list[str]]:
    """The pace of every setting, and the best few of each arm."""
    paces: dict[str, float] = {}
    chosen: list[str] = []
    for arm, settings in arms.items():
        for setting in settings:
            samples = SAMPLES_PER_WORKER * int(setting.split()[1])
            paces[setting] = measure(dataset, setting, samples).samples_per_s
            print(f"{dataset}  {setting:<16} {paces[setting]:.0f} samples/s", file=sys.stderr, flush=True)
        ranked = sorted(settings, key=lambda s: paces[s], reverse=True)
        chosen += ranked[: FINALISTS if arm == "torch" else 1]
    return paces, chosen


def compare(dataset: str, rounds: int, with_peers: bool) -> Outcome:
    arms = {"torch": [f"torch {w} {p}" for w in WORKERS for p in PREFETCH]}
    if with_peers:
        arms |= {arm: [f"{arm} {w} 4" for w in PEER_WORKERS] for arm in PEER_ARMS}
    tried, chosen = try_out(dataset, arms)
    passes = alternate(
        [*chosen, "flatout 0 0"],
        rounds,
        lambda setting, _: measure(dataset, setting, ALL_SAMPLES),
        lambda p: f"{p.samples_per_s:.0f} samples/s with {p.workers} workers",
    )
    paces = {setting: [p.samples_per_s for p in runs] for setting, runs in passes.items()}
    best = max((s for s in chosen if s.startswith("torch ")), key=lambda s: estimate(paces[s]).mid)
    ours = passes["flatout 0 0"]
    ratio = estimate([a / b for a, b in zip(paces["flatout 0 0"], paces[best], strict=True)])
    return Outcome(tried, paces, best, ratio, [p.settled_at for p in ours], [p.workers for p in ours])


def missed(dataset: str, outcome: Outcome) -> list[str]:
    sentences = []
    if outcome.ratio.mid < BARS[dataset]:
        sentences.append(f"{dataset}: {outcome.ratio.mid:.2f} of torch's best, not ≥ {BARS[dataset]:g}")
    if any(settled is None or settled >= MOST_STEPS for settled in outcome.settled_at):
        sentences.append(f"{dataset}: settled after {outcome.settled_at} steps, not < {MOST_STEPS}")
    return sentences


def page_of(dataset: str, outcome: Outcome) -> str:
    order = sorted(outcome.paces, key=lambda s: estimate(outcome.paces[s]).mid, reverse=True)
    rows = []
    for setting in order:
        pace = estimate(outcome.paces[setting])
        name = "flatout, tuned online" if setting == "flatout 0 0" else setting
        rows.append([name, f"{pace.mid:.0f}", f"{pace.smallest:.0f} to {pace.largest:.0f}"])
    ratio, bar = outcome.ratio, BARS[dataset]
    settled = ", ".join(map(str, outcome.settled_at))
    return (
        f"## {dataset}\n\n"
        + results.table(["loader, workers, batches ahead", "samples/s, median", "range"], rows)
        + f"\nflatout over torch's best (`{outcome.best}`): {ratio.mid:.2f} ({ratio.low:.2f} to {ratio.high:.2f}), "
        f"bar {bar:g}; settled after {settled} steps with {', '.join(map(str, outcome.workers))} workers.\n\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=list(DATASETS))
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--gate", action="store_true", help="exit 1 if a bar is missed")
    parser.add_argument("--results", type=Path, default=results.RESULTS, metavar="DIR")
    o = parser.parse_args()

    outcomes = {name: compare(name, o.rounds, not o.no_peers) for name in o.datasets}
    misses = [sentence for name, outcome in outcomes.items() for sentence in missed(name, outcome)]
    page = "".join(page_of(name, outcome) for name, outcome in outcomes.items())
    if not o.no_peers:
        page += (
            "WebDataset and LitData read shards, written before, and give samples in the order of shards and workers: a"
            " slow one holds up its own worker only. The others give them in the dataset's order.\n\n"
        )
    page += "".join(f"Missed: {sentence}.\n" for sentence in misses)
    print(page)
    data = {"versions": results.versions("torch", "flatout"), "peers": PEERS, "rounds": o.rounds}
    print(
        f"written: {results.write('loader', {**data, **outcomes, 'missed': misses}, page, o.results)}", file=sys.stderr
    )
    return 1 if o.gate and misses else 0


if __name__ == "__main__":
    sys.exit(main())

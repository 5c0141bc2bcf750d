"""`flatout fix` alone on the five reference workloads, and on scripts that need nothing.

    python -m benchmarks.fix [--size tiny|full] [--only NAME ...] [--budget 4m] [--allow numeric] [--expert] [--keep D]
    python -m benchmarks.fix --healthy 20 [--budget 60s]

The first gives before, after and ceiling of each workload, beside its guide's claim and, with `--expert`, the script as
an expert would write it within the same safety classes. The second counts how often a search on a healthy script keeps
anything: it should be none of twenty. Few remedies are proposed there; `benchmarks.healthy_search` puts the rule itself
to the test, with thousands of searches.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.common.bounded import run_to_end
from benchmarks.common.child import CHILDREN, ROOT
from benchmarks.common.results import RESULTS, table, write
from benchmarks.common.spent import by_kind, each, spent
from benchmarks.workloads import EXPERTS, PLANS
from flatout.app.demo import FOLDER, SIZES

_STEPS = 100_000
_HEALTHY = CHILDREN / "healthy.py"
_MOST_KEPT = 0.05
_HEAD = ["workload", "before", "after", "gain (95%)", "claim", "of the ceiling", "expert", "kept", "quality", "took"]


def fixed(script: Path, words: list[str], here: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The record of one `flatout fix`, or what it failed with under "failure"."""
    budget, allow, limit_s = options.budget, options.allow, options.limit
    out = here / "fix.json"
    command = [sys.executable, "-m", "flatout", "fix", "-v", "--fresh", "--budget", budget, "--json", str(out)]
    command += ["--allow", allow] if allow else []
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    printed, code = run_to_end([*command, "--", sys.executable, str(script), *words], here, environ, limit_s)
    print(printed, file=sys.stderr, flush=True)
    if not out.exists():
        return {"failure": f"exit {code}: " + " / ".join(printed.splitlines()[-3:])[-400:]}
    record: dict[str, Any] = json.loads(out.read_text())
    trials = [one for folder in (here / ".flatout" / "fix").iterdir() for one in spent(folder)]
    print(each(trials), by_kind(trials, record["took_s"]), sep="\n", file=sys.stderr, flush=True)
    return {**record, "spent": [asdict(trial) for trial in trials]}


def _words(name: str, size: str, data: Path, steps: int, out: Path) -> list[str]:
    own = PLANS[name].arguments if size == "full" else ()
    return ["--size", size, "--data", str(data / name), *own, "--steps", str(steps), "--out", str(out)]


def _expert_per_s(name: str, here: Path, options: argparse.Namespace, limit_s: float) -> float | None:
    report = here / "expert.json"
    command = [sys.executable, "-m", "flatout", "run", "-q", "--json", str(report), "--out", str(here / "expert"), "--"]
    steps = PLANS[name].expert_steps if options.size == "full" else 40
    words = [*_words(name, options.size, options.data, steps, here / "out"), "--allow", options.allow or "lossless"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    run_to_end([*command, sys.executable, str(EXPERTS / name / "train.py"), *words], here, environ, limit_s)
    return json.loads(report.read_text())["throughput"]["samples_per_s"] if report.exists() else None


def row(name: str, record: dict[str, Any], expert: float | None) -> list[str]:
    if "failure" in record:
        return [name, record["failure"], *["–"] * (len(_HEAD) - 2)]
    gain, ceiling, quality = record["gain"], record["ceiling"], record["quality"]
    said = [one["verdict"] for one in (quality["identity"], quality["envelope"], quality["metric"]) if one]
    return [
        name,
        _figure(record["before_per_s"]),
        _figure(record["after_per_s"]),
        f"×{gain['mid']:.2f} ({gain['low']:.2f} to {gain['high']:.2f})" if gain else "–",
        f"×{PLANS[name].claim:g}",
        f"{100 * ceiling['reached']['mid']:.0f}%" if ceiling and ceiling["reached"] else "–",
        _figure(expert),
        ", ".join(f"{key}={value}" for key, value in record["profile"].items()) or "nothing",
        ", ".join(said) or "–",
        f"{record['took_s'] / 60:.1f} min, {record['trials']} trials",
    ]


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def workloads(options: argparse.Namespace) -> None:
    rows, records = [], {}
    with tempfile.TemporaryDirectory(prefix="flatout-fix-") as scratch:
        for name in options.only or list(PLANS):
            here = Path(scratch) / name
            here.mkdir()
            script = FOLDER / name / "train.py"
            words = _words(name, options.size, options.data, _STEPS, here / "out")
            run_to_end([sys.executable, str(script), *words, "--make-data-only"], here, dict(os.environ), 300.0)
            record = fixed(script, words, here, options)
            expert = _expert_per_s(name, here, options, 120.0) if options.expert else None
            if options.keep is not None:
                _keep(here / ".flatout" / "fix", options.keep / name)
            records[name] = {**record, "expert_per_s": expert}
            rows.append(row(name, record, expert))
            print("  ".join(rows[-1]), file=sys.stderr, flush=True)
            write(f"fix-{options.size}", {"records": records}, table(_HEAD, rows), options.results)


def _keep(folder: Path, place: Path) -> None:
    """What each trial said and came to. Recordings are large and stay behind, but for those that findings come from."""
    looked = [file for file in folder.glob("*/look-*/**/*") if file.is_file()]
    for file in [*folder.rglob("trial.json"), *folder.rglob("output.txt"), *folder.rglob("fix.json"), *looked]:
        to = place / file.relative_to(folder)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, to)


def healthy(options: argparse.Namespace) -> None:
    """Searches on a script that needs nothing: what is kept there is a false alarm."""
    options.allow = options.allow or "numeric"
    kept: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="flatout-fix-") as scratch:
        for number in range(options.healthy):
            here = Path(scratch) / str(number)
            here.mkdir()
            record = fixed(_HEALTHY, [str(number)], here, options)
            kept.append({name: record.get(name) for name in ("profile", "tried", "failure", "trials")})
            print(f"{number}: {record.get('profile', record.get('failure'))}", file=sys.stderr, flush=True)
            alarms = [one for one in kept if one["profile"]]
            tried = [len(one["tried"] or ()) for one in kept]
            page = f"{len(alarms)} of {len(kept)} searches kept something; they tried {sum(tried)} remedies in all.\n"
            write("fix-healthy", {"searches": kept}, page, options.results)
    failed = [one for one in kept if one["failure"]]
    if failed or len(alarms) > _MOST_KEPT * len(kept):
        raise SystemExit(f"{len(alarms)} of {len(kept)} searches kept something, {len(failed)} failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--only", nargs="*", metavar="NAME")
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "flatout-workloads")
    parser.add_argument("--budget", default="4m")
    parser.add_argument("--allow", choices=("numeric", "training"))
    parser.add_argument("--expert", action="store_true", help="measure the expert's script as well")
    parser.add_argument("--healthy", type=int, metavar="N", help="N searches on a script that needs nothing")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep every trial's figures and output here")
    parser.add_argument("--limit", type=float, default=1200.0, help="seconds for one search at most")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.healthy:
        healthy(options)
    else:
        workloads(options)


if __name__ == "__main__":
    main()

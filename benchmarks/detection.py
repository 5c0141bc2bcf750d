"""Does flatout name what is wrong? Scripts with one planted problem each, and healthy ones, run and scored.

    python -m benchmarks.detection                       what this machine can run
    python -m benchmarks.detection --only 'in10*' --rounds 3
    python -m benchmarks.detection --device cuda --gate  exit 1 if a bar is missed

Every script of `benchmarks/corpus` runs under `flatout run` as it is and with `--fixed`, which removes its problem. The
findings of the first are scored; the actual gain is the ratio of both reports' throughput.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import verdicts
from benchmarks.common.alternate import order
from benchmarks.common.bounded import run_to_end
from benchmarks.common.child import ROOT
from benchmarks.common.corpus import CORPUS, Script, scripts
from benchmarks.common.results import RESULTS, table, versions, write
from benchmarks.common.scoring import Found, Outcome, Score, by_family, findings, has_varied, missed, rates, score
from flatout.diagnose.summary import summarise_run
from flatout.report.json import to_json
from flatout.store.run import StoredRun

PLANTED, REPAIRED = "planted", "repaired"


@dataclass(frozen=True, slots=True)
class Bench:
    device: str
    limit_s: float
    rounds: int
    peers: tuple[str, ...] = ()
    keep: Path | None = None
    # Recordings kept earlier are there: nothing is run, they are diagnosed again.
    again: bool = False

    def outcome(self, script: Script) -> Outcome:
        """Both arms of one script, in turn; what was said comes from the first round, speeds are medians."""
        arms = [PLANTED] if script.is_control else [PLANTED, REPAIRED]
        reports: dict[str, list[dict[str, Any]]] = {arm: [] for arm in arms}
        rounds = 1 if script.is_control else self.rounds
        for round_index in range(rounds):
            for arm in order(arms, round_index):
                report = self.report(script, arm, round_index)
                if isinstance(report, str):
                    return Outcome(script, (), failure=f"{arm}: {report}")
                reports[arm].append(report)
        result = Outcome(script, findings(reports[PLANTED][0]))
        if not script.is_control:
            pairs = [rates(*pair) for pair in zip(reports[PLANTED], reports[REPAIRED], strict=True)]
            result = replace(
                result,
                repaired=findings(reports[REPAIRED][0]),
                planted_rate=_median([planted for planted, _ in pairs]),
                repaired_rate=_median([repaired for _, repaired in pairs]),
                varied=any(has_varied(report) for arm in arms for report in reports[arm]),
            )
        said = [(peer, verdicts.of(peer, script, self.environment(), self.limit_s)) for peer in self.peers]
        return replace(result, peers=tuple(said))

    def report(self, script: Script, arm: str, round_index: int) -> dict[str, Any] | str:
        """The report of one run, or what went wrong."""
        kept = self.keep.absolute() / f"{script.name}-{arm}-{round_index}" if self.keep else None
        if self.again and kept is not None:
            return to_json(summarise_run(StoredRun(kept))) if kept.exists() else f"no recording in {kept.name}"
        with tempfile.TemporaryDirectory(prefix="flatout-corpus-") as folder:
            out = Path(folder) / "report.json"
            watch = [
                sys.executable,
                "-m",
                "flatout",
                "run",
                "-q",
                "--out",
                str(kept or Path(folder) / "run"),
                "--json",
                str(out),
            ]
            command = [*watch, *script.options, "--", sys.executable, str(script.path), *script.arguments]
            command += ["--fixed"] if arm == REPAIRED else []
            here = Path(folder) / "here"
            here.mkdir()
            printed, code = run_to_end(command, here, self.environment(), self.limit_s)
            if code is None:
                return f"not done after {self.limit_s:g} s"
            if code or not out.exists():
                return f"exit {code}: " + " / ".join(printed.splitlines()[-3:])[-300:]
            report: dict[str, Any] = json.loads(out.read_text())
            return report

    def environment(self) -> dict[str, str]:
        # What is measured is this checkout, installed or not.
        environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        return {**environ, "CUDA_VISIBLE_DEVICES": ""} if self.device == "cpu" else environ


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def chosen(device: str, only: Sequence[str], corpus: Path = CORPUS) -> list[Script]:
    """The scripts for this device and this machine that a pattern asks for."""
    cpus = len(os.sched_getaffinity(0))
    patterns = only or ["*"]
    return [
        script
        for script in scripts(corpus)
        if script.suits(device) and script.cpus <= cpus and any(fnmatch.fnmatch(script.name, p) for p in patterns)
    ]


def row(one: Outcome) -> list[str]:
    """One line of the table of scripts."""
    said = ", ".join(f"{found.code} {_times(found.gain)}" for found in one.planted[:3]) or "nothing"
    named = one.named
    place = "control" if one.script.is_control else str(one.place or "missed")
    line = {None: "–", True: "right", False: f"{Path(named.file or '').name}:{named.line}" if named else ""}
    return [
        one.script.name,
        ", ".join(one.script.codes) or "none",
        one.failure or said,
        place if not one.alarms else "false alarm",
        line[one.line_right],
        _times(named.gain if named else None),
        f"{_times(named.low)} to {_times(named.high)}" if named and named.low else "–",
        _times(one.actual) + (" (varied)" if one.varied else ""),
        {None: "–", True: "yes", False: "no"}[one.gain_right],
        {None: "–", True: "yes", False: "no"}[one.gain_inside],
        "yes" if one.still_said else "",
        *(verdict for _, verdict in one.peers),
    ]


_HEAD = [
    "script",
    "planted",
    "said",
    "place",
    "line",
    "predicted",
    "interval",
    "actual",
    "within",
    "inside",
    "still said when repaired",
]
_FAMILIES = [
    "family",
    "first",
    "by its code",
    "first three",
    "line",
    "gain ±20%",
    "gain ×1.5",
    "gain inside",
    "quiet",
    "failed",
]
_PEERS = ["peer", "names the right family", "false alarm on a control", "no verdict"]


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"×{ratio:.2f}"


def _family(name: str, one: Score) -> list[str]:
    shares = (one.top1, one.coded, one.top3, one.lines, one.gains, one.near, one.inside, one.quiet)
    return [name, *(str(share) for share in shares), str(one.failures)]


def _peer(name: str, outcomes: Sequence[Outcome]) -> list[str]:
    one = verdicts.tally(name, outcomes)
    return [name, str(one.right), str(one.alarms), str(one.no_verdict)]


def page(outcomes: Sequence[Outcome], peers: Sequence[str] = ()) -> str:
    """The result as Markdown."""
    families = [_family(name, one) for name, one in by_family(outcomes).items()]
    total = score(outcomes)
    sentences = [f"Missed: {sentence}." for sentence in missed(total)] or ["All bars reached."]
    return "\n".join(
        [
            table(_FAMILIES, [*families, _family("all", total)]),
            "\n".join(f"- {sentence}" for sentence in sentences) + "\n",
            *([table(_PEERS, [_peer(peer, outcomes) for peer in peers])] if peers else []),
            table([*_HEAD, *peers], [row(outcome) for outcome in outcomes]),
        ]
    )


def plain(one: Outcome) -> dict[str, object]:
    """An outcome for the JSON result."""

    def each(found: Found) -> dict[str, object]:
        file = Path(found.file).name if found.file else None
        return {
            "code": found.code,
            "file": file,
            "line": found.line,
            "gain": found.gain,
            "low": found.low,
            "high": found.high,
        }

    return {
        "script": one.script.name,
        "codes": one.script.codes,
        "planted": [each(found) for found in one.planted],
        "repaired": [each(found) for found in one.repaired],
        "place": one.place,
        "line_right": one.line_right,
        "actual": one.actual,
        "varied": one.varied,
        "gain_inside": one.gain_inside,
        "gain_right": one.gain_right,
        "failure": one.failure,
        "peers": dict(one.peers),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="PATTERN", help="scripts by name, such as 'in10*'")
    parser.add_argument("--corpus", type=Path, default=CORPUS, metavar="DIR", help="a folder of such scripts")
    parser.add_argument("--device", choices=["cpu", "cuda"], default=None, help="default: cuda where there is a GPU")
    parser.add_argument("--jobs", type=int, default=1, help="scripts at a time; more than one disturbs the timing")
    parser.add_argument("--rounds", type=int, default=1, help="runs of either arm, in turn")
    parser.add_argument("--limit", type=float, default=90.0, help="seconds for one run")
    parser.add_argument("--peers", nargs="*", choices=verdicts.PEERS, default=[], help="ask other tools too")
    parser.add_argument("--gate", action="store_true", help="exit 1 if a bar is missed")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the recordings, to diagnose them again")
    parser.add_argument("--again", action="store_true", help="diagnose what --keep has kept, run nothing")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR")
    o = parser.parse_args()
    device = o.device or ("cuda" if shutil.which("nvidia-smi") else "cpu")
    wanted = chosen(device, o.only, o.corpus)
    if o.again and o.keep is None:
        raise SystemExit("--again needs --keep DIR: where the recordings are")
    if not wanted:
        raise SystemExit(f"no script for {device} matches {o.only}")
    bench = Bench(device, o.limit, o.rounds, tuple(o.peers), o.keep, o.again)
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(max(1, o.jobs)) as pool:
        for done in as_completed([pool.submit(bench.outcome, script) for script in wanted]):
            outcomes.append(done.result())
            outcomes.sort(key=lambda one: (one.script.is_control, one.script.name))
            print("  ".join(filter(None, row(done.result()))), file=sys.stderr, flush=True)
            # After every script: a machine that goes away keeps what it has measured.
            where = _write(device, outcomes, o)
    print(page(outcomes, o.peers))
    print(f"written: {where}", file=sys.stderr)
    return 1 if o.gate and missed(score(outcomes)) else 0


def _write(device: str, outcomes: Sequence[Outcome], o: argparse.Namespace) -> Path:
    data = {
        "versions": versions("torch", "flatout"),
        "rounds": o.rounds,
        "jobs": o.jobs,
        "score": score(outcomes),
        "missed": missed(score(outcomes)),
        "peers": {peer: verdicts.tally(peer, outcomes) for peer in o.peers},
        "scripts": [plain(outcome) for outcome in outcomes],
    }
    name = f"detection-{device}" if o.corpus == CORPUS else f"detection-{device}-{o.corpus.name}"
    return write(name, data, page(outcomes, o.peers), o.results)


if __name__ == "__main__":
    sys.exit(main())

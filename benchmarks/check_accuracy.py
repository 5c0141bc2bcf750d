"""Does `flatout check` say what a reader of the code would say? Labelled lines of public training code, checked.

    python -m benchmarks.check_accuracy --fetch DIR      pip download the labelled packages and unpack them there
    python -m benchmarks.check_accuracy --source DIR     check them and compare with benchmarks/check_labels
    python -m benchmarks.check_accuracy --source DIR --half heldout --packages 'yolo*'

DIR holds a folder NAME-VERSION for each package. A package is checked as a whole, as its author would check it; only
its labelled files are scored. Exit 1 if less than 90% of the anti-patterns are named, or a control is disturbed.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.common import results
from benchmarks.common.child import ROOT
from benchmarks.common.labels import HALVES, Expected, LabelledFile, LabelledPackage, Quiet, Spot, read, settled

RECALL = 0.9
# What is said of a file that could not be read as Python is no finding about its training.
NO_PROBLEM = ("invalid-syntax", "unused-ignore")


@dataclass(frozen=True, slots=True)
class Said:
    """One finding in one file."""

    code: str
    line: int
    severity: str
    cause: str


@dataclass(frozen=True, slots=True)
class FileScore:
    """What came of one labelled file."""

    package: LabelledPackage
    file: LabelledFile
    named: list[Expected] = field(default_factory=list)
    missed: list[Expected] = field(default_factory=list)
    disturbed: list[tuple[Quiet, Said]] = field(default_factory=list)
    # Every finding of the file is in exactly one of these.
    true: list[Said] = field(default_factory=list)
    false: list[tuple[Said, str]] = field(default_factory=list)
    unjudged: list[Said] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Share:
    part: int
    whole: int

    def __str__(self) -> str:
        return f"{self.part} / {self.whole}" + (f" ({self.part / self.whole:.0%})" if self.whole else "")


def score(package: LabelledPackage, file: LabelledFile, lines: Sequence[str], said: Sequence[Said]) -> FileScore:
    """Compare the findings of a file with its labels."""

    def found(spot: Spot) -> Spot:
        there = settled(spot, lines)
        if there is None:
            raise SystemExit(f"{package.folder}/{file.path}: line {spot.line} is not what was labelled")
        return there

    result = FileScore(package, file)
    expected = [(found(one.spot), one) for one in file.expected]
    quiet = [(found(one.spot), one) for one in file.quiet]
    judged = [(found(one.spot), one) for one in file.judged]
    for spot, label in expected:
        is_named = any(spot.holds(one.line) and one.code in label.codes for one in said)
        (result.named if is_named else result.missed).append(label)
    for one in said:
        if any(spot.holds(one.line) and one.code in label.codes for spot, label in expected):
            result.true.append(one)
            continue
        control = next((q for spot, q in quiet if spot.holds(one.line) and q.forbids(one.code)), None)
        verdict = next((j for spot, j in judged if spot.holds(one.line) and j.code == one.code), None)
        if control is not None:
            result.disturbed.append((control, one))
            result.false.append((one, control.why))
        elif verdict is None:
            result.unjudged.append(one)
        elif verdict.is_true:
            result.true.append(one)
        else:
            result.false.append((one, verdict.why))
    return result


def checked(folder: Path) -> dict[str, list[Said]]:
    """The findings of `flatout check` in a package, by file."""
    paths = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-m", "flatout", "check", "--format", "json", "."],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=600,
    )
    # A crash of Python's leaves with 1 as well, but says nothing.
    if done.returncode > 1 or not done.stdout:
        raise SystemExit(f"exit {done.returncode} from flatout check in {folder}\n{done.stderr[-2000:]}")
    by_file: dict[str, list[Said]] = {}
    for finding in json.loads(done.stdout)["findings"]:
        if finding["code"] not in NO_PROBLEM:
            where = finding["location"]
            said = Said(finding["code"], where["line"], finding["severity"], finding["cause"])
            by_file.setdefault(Path(where["file"]).as_posix(), []).append(said)
    return by_file


def scores(packages: Iterable[LabelledPackage], source: Path) -> tuple[list[FileScore], list[str]]:
    """The scores of all labelled files, and the packages that are not there."""
    done: list[FileScore] = []
    absent = []
    for package in packages:
        folder = source / package.folder
        if not folder.is_dir():
            absent.append(package.folder)
            continue
        by_file = checked(folder)
        for file in package.files:
            lines = (folder / file.path).read_text(encoding="utf-8", errors="replace").split("\n")
            done.append(score(package, file, lines, by_file.get(file.path, [])))
        print(f"{package.folder}: {sum(len(one) for one in by_file.values())} findings", file=sys.stderr)
    return done, absent


def recall(of: Sequence[FileScore]) -> Share:
    named = sum(len(one.named) for one in of)
    return Share(named, named + sum(len(one.missed) for one in of))


def precision(of: Sequence[FileScore]) -> Share:
    true = sum(len(one.true) for one in of)
    return Share(true, true + sum(len(one.false) for one in of))


def controls(of: Sequence[FileScore]) -> Share:
    whole = sum(len(one.file.quiet) for one in of)
    return Share(whole - sum(len({id(quiet) for quiet, _ in one.disturbed}) for one in of), whole)


def page(of: Sequence[FileScore], absent: Sequence[str]) -> str:
    """For people."""
    packages = {one.package.name for one in of}
    text = f"{len(of)} files of {len(packages)} packages.\n\n"
    text += results.table(
        ["half", "files", "anti-patterns named", "controls left in peace", "findings that are true", "not judged yet"],
        [_row(half, [one for one in of if half in ("all", one.package.half)]) for half in (*HALVES, "all")],
    )
    text += "\n## By code\n\n" + results.table(["code", "named", "true findings"], _codes(of))
    text += "\n## By field\n\n" + results.table(
        ["field", "files", "named", "true findings"],
        [
            [name, str(len(part)), str(recall(part)), str(precision(part))]
            for name in sorted({one.file.field for one in of})
            if (part := [one for one in of if one.file.field == name])
        ],
    )
    text += _listed("Missed", of, lambda one: [f"{m.spot.line} {'/'.join(m.codes)}: {m.why}" for m in one.missed])
    text += _listed("False", of, lambda one: [f"{s.line} {s.code}: {why}" for s, why in one.false])
    text += _listed(
        "Not judged", of, lambda one: [f"{s.line} {s.code} ({s.severity}): {s.cause}" for s in one.unjudged]
    )
    if absent:
        text += f"\nNot there, so not checked: {', '.join(absent)}.\n"
    return text


def _row(half: str, of: Sequence[FileScore]) -> list[str]:
    unjudged = sum(len(one.unjudged) for one in of)
    return [half, str(len(of)), str(recall(of)), str(controls(of)), str(precision(of)), str(unjudged)]


def _codes(of: Sequence[FileScore]) -> list[list[str]]:
    # A label that allows several codes counts under its first.
    codes = {label.codes[0] for one in of for label in one.file.expected}
    codes |= {said.code for one in of for said in [*one.true, *(said for said, _ in one.false)]}
    rows = []
    for code in sorted(codes):
        named = sum(label.codes[0] == code for one in of for label in one.named)
        missed = sum(label.codes[0] == code for one in of for label in one.missed)
        true = sum(said.code == code for one in of for said in one.true)
        false = sum(said.code == code for one in of for said, _ in one.false)
        rows.append([code, str(Share(named, named + missed)), str(Share(true, true + false))])
    return rows


def _listed(title: str, of: Sequence[FileScore], lines: Callable[[FileScore], list[str]]) -> str:
    listed = [f"- {one.package.folder}/{one.file.path}:{line}" for one in of for line in lines(one)]
    return f"\n## {title}\n\n" + "\n".join(listed) + "\n" if listed else ""


def fetch(packages: Iterable[LabelledPackage], target: Path) -> None:
    """Download the source archives with pip and unpack them; what pip cannot prepare is named and left out."""
    target.mkdir(parents=True, exist_ok=True)
    for package in packages:
        folder = target / package.folder
        if folder.exists():
            continue
        with tempfile.TemporaryDirectory(dir=target) as scratch:
            pinned = f"{package.name}=={package.version}"
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", package.name, pinned]
            done = subprocess.run([*command, "-d", scratch], capture_output=True, text=True)
            archives = [path for path in Path(scratch).iterdir() if path.is_file()]
            if done.returncode != 0 or len(archives) != 1:
                print(f"{pinned}: pip cannot prepare it; unpack its source as {folder}", file=sys.stderr)
                continue
            unpacked = Path(scratch) / "unpacked"
            _unpack(archives[0], unpacked)
            (inner,) = unpacked.iterdir()
            inner.rename(folder)


def _unpack(archive: Path, target: Path) -> None:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as zipped:
            zipped.extractall(target)
    else:
        with tarfile.open(archive) as tarred:
            tarred.extractall(target, filter="data")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--source", type=Path, metavar="DIR", help="where the unpacked packages are")
    parser.add_argument("--fetch", type=Path, metavar="DIR", help="download and unpack the packages there first")
    parser.add_argument("--half", choices=(*HALVES, "all"), default="all")
    parser.add_argument("--packages", default="*", metavar="GLOB")
    parser.add_argument("--results", type=Path, default=results.RESULTS, metavar="DIR")
    o = parser.parse_args()

    packages = [one for one in read() if o.half in ("all", one.half) and fnmatch.fnmatch(one.name, o.packages)]
    if o.fetch is not None:
        fetch(packages, o.fetch)
    source = o.source or o.fetch
    if source is None:
        parser.error("--source DIR or --fetch DIR is needed")
    done, absent = scores(packages, source.resolve())
    if not done:
        parser.error(f"no labelled package is in {source}")
    text = page(done, absent)
    print(text)
    data = {
        "half": o.half,
        "recall": recall(done),
        "controls": controls(done),
        "precision": precision(done),
        "absent": absent,
        "missed": [f"{s.package.folder}/{s.file.path}:{m.spot.line} {m.codes[0]}" for s in done for m in s.missed],
        "false": [f"{s.package.folder}/{s.file.path}:{said.line} {said.code}" for s in done for said, _ in s.false],
    }
    name = "check-accuracy" if o.half == "all" else f"check-accuracy-{o.half}"
    print(f"written: {results.write(name, data, text, o.results)}", file=sys.stderr)
    share = recall(done)
    disturbed = any(one.disturbed for one in done)
    return 1 if share.part < RECALL * share.whole or disturbed else 0


if __name__ == "__main__":
    sys.exit(main())

"""The user's code, where the file is still as it was when the run began: single lines, and where it evaluates."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from flatout.records.evidence import Evidence
from flatout.records.report import LineCost, Location, RunReport
from flatout.records.timeline import Excerpt
from flatout.source.syntax.module import Module, parse_text
from flatout.source.syntax.nodes import Def, all_names_in
from flatout.store.redaction import redact_text
from flatout.store.run import StoredRun

_LONGEST = 1 << 20
DATA_PARALLEL = re.compile(r"^[^#]*(?<![A-Za-z])DataParallel\(")
THREADS = re.compile(r"^[^#]*(\bset_num_threads\(|(OMP|MKL)_NUM_THREADS)")
# In the order in which they tell most of what the model computes in.
FLOAT64 = tuple(
    re.compile(r"^[^#]*" + pattern)
    for pattern in (
        r"set_default_(dtype|tensor_type)\(.*(float64|[dD]ouble)",
        r"\.double\(\)|\.to\(.*\b(float64|double)\b",
        r"\b(torch\.(float64|double)\b|DoubleTensor)",
    )
)
_AROUND = 3
_WIDEST = 200
_MOST = 80


def source_lines(run: StoredRun, places: Iterable[Location]) -> dict[tuple[str, int], str]:
    """By file and line. A file that is gone, was changed since, or is no plain text gives none."""
    wanted: dict[str, set[int]] = defaultdict(set)
    for place in places:
        wanted[place.file].add(place.line)
    found = {}
    for file, numbers in wanted.items():
        lines = _read(Path(file), run.source_until_unix_s)
        found.update({(file, number): lines[number - 1].strip() for number in numbers if 1 <= number <= len(lines)})
    return found


def whole_file(run: StoredRun, file: str) -> str:
    """All of it; empty where it is not as it was."""
    return "\n".join(_read(Path(file), run.source_until_unix_s))


def first_match(run: StoredRun, lines: Iterable[LineCost], pattern: re.Pattern[str]) -> Location | None:
    """The first line that matches, in the files these lines are of."""
    for file in dict.fromkeys(line.location.file for line in lines):
        for number, text in enumerate(_read(Path(file), run.source_until_unix_s), start=1):
            if pattern.search(text):
                return Location(file, number)
    return None


def _read(path: Path, begun_unix_s: float) -> list[str]:
    try:
        facts = path.stat()
        # A second's grace: file systems round their times.
        if facts.st_mtime > begun_unix_s + 1 or facts.st_size > _LONGEST:
            return []
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []


# The user's code around the places that a report names, where it is still as it was when the run began.


def excerpts(run: StoredRun, evidence: Evidence) -> dict[Location, Excerpt]:
    """By place. Of a file that was changed since, the line as it was noted when the run ended, or nothing."""
    texts: dict[str, list[str]] = {}
    noted = noted_lines(run, evidence.report)
    found: dict[Location, Excerpt] = {}
    for place in dict.fromkeys(_places(evidence.report)):
        if place.file not in texts:
            texts[place.file] = whole_file(run, place.file).split("\n")
        lines = texts[place.file]
        if 1 <= place.line <= len(lines) and any(lines):
            first = max(1, place.line - _AROUND)
            shown = lines[first - 1 : place.line + _AROUND]
            found[place] = Excerpt(place, first, tuple(_shown(line) for line in shown))
        elif place in noted:
            found[place] = Excerpt(place, place.line, (_shown(noted[place]),))
        if len(found) >= _MOST:
            break
    return found


def _shown(line: str) -> str:
    """A report is handed on: no password that stands in the source goes with it."""
    return redact_text(line)[:_WIDEST]


def _places(report: RunReport) -> Iterator[Location]:
    """Those that matter most first."""
    for finding in report.findings:
        if finding.location is not None:
            yield finding.location
        yield from (other.location for other in finding.related)
    yield from (cost.location for cost in (*report.lines, *report.worker_lines))
    yield from report.sites


def noted_lines(run: StoredRun, report: RunReport) -> dict[Location, str]:
    """Those written down when the run ended, and those of files that are still as they were."""
    found = {}
    for item in (run.summary or {}).get("snippets", ()):
        found[Location(item["location"]["file"], item["location"]["line"])] = str(item["text"])
    return found | {snippet.location: snippet.text for snippet in report.snippets}


# Where the script decides to evaluate: the call of its evaluation, or the loop over its validation data.


_NO_GRADIENTS = ("no_grad", "inference_mode", "eval", "set_grad_enabled")


def evaluated_at(run: StoredRun, lines: Sequence[LineCost]) -> Location | None:
    """From the lines seen while evaluating; None where the source does not tell."""
    files = dict.fromkeys(line.location.file for line in lines if line.phase != "data")
    parsed = [parse_text(whole_file(run, file), file) for file in files]
    seen = _weights(lines, ("eval",))
    function, place = _evaluation(parsed, seen)
    if place is None:
        return None
    name = None if function is None else function.name
    calls = [Location(module.shown, call.lineno) for module in parsed for call, _ in module.calls.get(name or "", ())]
    trained = _weights(lines, ("forward", "backward", "optimizer", "data"))
    training = {_function_at(parsed, line) for line in trained}
    beside = [call for call in calls if _function_at(parsed, call) in training]
    # A call beside the training is the one; so is the only call there is.
    for found in (beside, calls):
        if len(found) == 1:
            return found[0]
    return place if not calls else None


def _weights(lines: Sequence[LineCost], phases: Sequence[str]) -> dict[Location, float]:
    found: dict[Location, float] = defaultdict(float)
    for line in lines:
        if line.phase in phases:
            found[line.location] += line.ms
    return found


def _evaluation(parsed: Sequence[Module], seen: dict[Location, float]) -> tuple[Def | None, Location | None]:
    """The function that evaluates, if it is one; and where it, or else the loop that evaluates, begins."""
    found = [
        (_weight(function, module.shown, seen), module.shown, function)
        for module in parsed
        for function in _find_evaluating(module)
    ]
    # The innermost line is mostly the model's or the dataset's own: then the only function in question has to be it.
    likely = [weighed for weighed in found if weighed[0]] or found
    best = max(likely, key=lambda weighed: weighed[0], default=None)
    if best is not None and (best[0] or len(likely) == 1):
        return best[2], Location(best[1], best[2].lineno)
    return None, _inline_loop(parsed, seen)


def _weight(node: Def | ast.For, file: str, seen: dict[Location, float]) -> float:
    last = node.end_lineno or node.lineno
    return sum(ms for place, ms in seen.items() if place.file == file and node.lineno <= place.line <= last)


@lru_cache(maxsize=16)  # a run that goes on is judged again and again, and its source stays as it was
def _find_evaluating(module: Module) -> list[Def]:
    functions = [function.definition for function in module.functions]
    return [definition for definition in functions if definition is not None and _evaluates(definition)]


def _evaluates(function: Def) -> bool:
    has_loop = any(isinstance(node, ast.For) for node in ast.walk(function))
    return has_loop and not all_names_in(function).isdisjoint(_NO_GRADIENTS) and not _trains(function)


def _inline_loop(parsed: Sequence[Module], seen: dict[Location, float]) -> Location | None:
    """Evaluation in the midst of the training loop: the loop over the validation data, which has no backward in it."""
    loops = [
        (_weight(node, module.shown, seen), Location(module.shown, node.lineno))
        for module in parsed
        for node in ast.walk(module.tree)
        if isinstance(node, ast.For) and not _trains(node)
    ]
    best = max(loops, key=lambda loop: loop[0], default=None)
    return best[1] if best is not None and best[0] else None


def _trains(node: ast.AST) -> bool:
    return any(isinstance(name, ast.Attribute) and name.attr == "backward" for name in ast.walk(node))


def _function_at(parsed: Sequence[Module], place: Location) -> tuple[str, int]:
    """The file and first line of the innermost function around a line; line 0 for the module itself."""
    around = [
        definition.lineno
        for module in parsed
        for function in (module.functions if module.shown == place.file else ())
        if (definition := function.definition) is not None
        and definition.lineno <= place.line <= (definition.end_lineno or 0)
    ]
    return place.file, max(around, default=0)

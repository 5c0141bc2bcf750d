"""What two runs differ in: phases, settings of their living objects, command, environment, and findings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from flatout.records.comparison import PhaseChange, SettingChange
from flatout.records.report import PHASES, Finding, RunReport

Settings = dict[tuple[str, str], Any]

# Names of single objects and counters: they differ between two runs of the very same thing.
_LOADER_ASIDE = {"id", "file", "line", "paths", "dataset", "class"}
_TORCH_ASIDE = {
    *("training_loaders", "compile_s", "compiled_frames", "anomaly_operations", "anomaly_ms", "convolution_share"),
    *("grad_dtypes", "grad_elements", "float64_factors", "convolution_layouts", "version"),
}
_OPTIMIZER_ASIDE = {"id", "class", "params", "groups", "bytes"}
_ENVIRONMENT_ASIDE = {"telemetry_ms_per_tick", "variables", "data_filesystems", "neighbours"}
_OBJECT = re.compile(r"loader|optimizer")
_OPTION = re.compile(r"--?[A-Za-z]")


def compare_settings(before: RunReport, after: RunReport) -> tuple[SettingChange, ...]:
    """Everything that was set, or that the machine sets, and is not the same in both; the command first."""
    old, new = _settings(before), _settings(after)
    names = [*old, *(name for name in new if name not in old)]
    groups = list(dict.fromkeys(group for group, _ in names))
    changed = []
    for group in groups:
        here = [{name: value for (of, name), value in side.items() if of == group} for side in (old, new)]
        if not all(here) and _OBJECT.match(group):
            # An object that only one of them has is one difference, not one for each of its settings.
            changed.append(SettingChange(group, "", "there" if here[0] else None, "there" if here[1] else None))
            continue
        for name in dict.fromkeys([*here[0], *here[1]]):
            value, other = (side.get(name) for side in here)
            if value != other or isinstance(value, bool) != isinstance(other, bool):
                changed.append(SettingChange(group, name, value, other))
    return tuple(changed)


def compare_phases(
    before: Sequence[RunReport],
    after: Sequence[RunReport],
    samples_per_step: tuple[float | None, float | None] = (None, None),
) -> tuple[PhaseChange, ...]:
    """In the order of every table; a phase that neither has is left out."""
    changes = []
    for name in PHASES:
        ms = (_mean(before, name, "ms"), _mean(after, name, "ms"))
        if not any(ms):
            continue
        of_sample = None
        if samples_per_step[0] and samples_per_step[1]:
            of_sample = (1e3 * ms[0] / samples_per_step[0], 1e3 * ms[1] / samples_per_step[1])
        changes.append(PhaseChange(name, ms, (_mean(before, name, "share"), _mean(after, name, "share")), of_sample))
    return tuple(changes)


def compare_findings(
    before: Sequence[RunReport], after: Sequence[RunReport]
) -> tuple[tuple[Finding, ...], tuple[Finding, ...], tuple[Finding, ...]]:
    """Gone, new, and stayed. A finding that moved to another line of its file with an edit has stayed."""
    old, new = _findings(before), _findings(after)
    gone, fresh = list(old), list(new)
    for at_its_line in (True, False):
        for finding in tuple(fresh):
            alike = (other for other in gone if _alike(other, finding))
            twin = next((other for other in alike if not at_its_line or other.location == finding.location), None)
            if twin is not None:
                gone.remove(twin)
                fresh.remove(finding)
    return tuple(gone), tuple(fresh), tuple(finding for finding in new if finding not in fresh)


def _findings(reports: Sequence[RunReport]) -> list[Finding]:
    """Those of the first run that most runs of the arm agree on, and others that most have."""
    found: list[Finding] = []
    for report in reports:
        for finding in report.findings:
            agreed = sum(any(_alike(seen, finding) for seen in other.findings) for other in reports)
            is_new = report is reports[0] or not any(_alike(known, finding) for known in found)
            if 2 * agreed > len(reports) and is_new:
                found.append(finding)
    return found


def _alike(finding: Finding, other: Finding) -> bool:
    """Of the same problem in the same file."""
    file, other_file = (None if found.location is None else found.location.file for found in (finding, other))
    return finding.code == other.code and file == other_file


def _mean(reports: Sequence[RunReport], phase: str, figure: str) -> float:
    values = [float(getattr(report.phases[phase], figure)) for report in reports if phase in report.phases]
    return sum(values) / len(values) if values else 0.0


def _settings(report: RunReport) -> Settings:
    live: dict[str, Any] = report.live
    environment = report.environment
    found: Settings = _command(report.run.argv)
    for place, loader in enumerate(live.get("loaders", ())):
        # The first loader of a dataset has the dataset's name; a second one for it is numbered.
        name = str(loader.get("dataset") or "loader").rpartition(".")[2]
        name = f"{name} {place + 1}" if any(group == f"loader {name}" for group, _ in found) else name
        found |= _plain(f"loader {name}", loader, _LOADER_ASIDE)
    for place, optimizer in enumerate(live.get("optimizers", ())):
        name = str(optimizer.get("class") or "optimizer").rpartition(".")[2]
        group = "optimizer" if place == 0 else f"optimizer {place + 1}"
        found |= {(group, "class"): name} | _plain(group, optimizer, _OPTIMIZER_ASIDE)
    found |= _plain("torch", live.get("torch", {}), _TORCH_ASIDE)
    found |= {
        ("remedy", remedy.id): remedy.value if remedy.state == "applied" else f"{remedy.value} ({remedy.state})"
        for remedy in report.remedies
    }
    found |= {("versions", "torch"): report.run.torch, ("versions", "python"): report.run.python}
    found |= {("run", "device"): report.run.device, ("run", "ranks"): report.run.ranks}
    found |= _plain("machine", environment, _ENVIRONMENT_ASIDE)
    variables = environment.get("variables")
    found |= _plain("variable", variables if isinstance(variables, dict) else {}, set())
    return found


def _plain(group: str, values: dict[str, Any], aside: Iterable[str]) -> Settings:
    return {(group, name): value for name, value in values.items() if name not in aside}


def _command(argv: Sequence[str]) -> Settings:
    """Options by their names; what has none by its place."""
    found: Settings = {}
    places, at = 0, 0
    while at < len(argv):
        word, following = argv[at], argv[at + 1] if at + 1 < len(argv) else None
        name, equals, value = word.partition("=")
        at += 1
        if not _OPTION.match(word):
            places += 1
            found["command", f"word {places}"] = word
        elif equals:
            found["command", name] = value
        elif following is not None and not _OPTION.match(following):
            found["command", name] = following
            at += 1
        else:
            found["command", name] = True
    return found

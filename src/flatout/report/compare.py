"""What `flatout compare` shows: the speeds side by side, then phases, settings and findings of each pair."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from flatout.records.comparison import Arm, Compared, Comparison, PhaseChange, SettingChange
from flatout.records.proof import MeasuredGain
from flatout.records.report import Finding
from flatout.report.layout import LABEL, PHASE_STYLE, add_label, draw_lines, separate_parts, wrap_sentence
from flatout.report.text import clean, figure, milliseconds, percent, shorten, told, with_interval
from flatout.words.codec import encode

_STYLE = {"faster": "bold green", "slower": "bold red", "no sure difference": "bold", "not measured": "bold yellow"}
_HEAD = ("run", "samples/s", "it/s", "step time", "batch", "vs. first")
# Where the terminal is narrow, these are left out one after the other until there is room for the names.
_DISPENSABLE = ("batch", "it/s", "step time")
# Below this part of either step a phase is not worth a line.
_SMALL = 0.005
_NOTHING_MS = 0.0005
_SHORTEST_NAME, _LONGEST_NAME = 14, 40
_LONGEST_VALUE = 40
# What ASCII takes more than our signs do, in one line.
_LONGER_IN_ASCII = 6


def to_json(compared: Compared) -> dict[str, Any]:
    """Additive from schema 1 on. What is not measured is null."""
    value: dict[str, Any] = encode(compared)
    return {"schema": value.pop("schema"), **value}


def render(compared: Compared, *, width: int, color: bool, unicode: bool, quiet: bool = False) -> str:
    """The whole page; with `quiet` the verdicts alone."""
    drawn_width, width = width, width if unicode else width - _LONGER_IN_ASCII
    lines = [line for words in compared.disturbed for line in wrap_sentence("DISTURBED", words, width, "bold yellow")]
    for comparison in compared.comparisons:
        lines += wrap_sentence(_word(comparison.judgement), comparison.sentence, width, _STYLE[comparison.judgement])
    if not quiet:
        parts = [lines, list(_speeds(compared, width))]
        for comparison in compared.comparisons:
            title = _title(comparison, width) if len(compared.comparisons) > 1 else ()
            parts += [list(part) for part in (title, _phases(comparison), _settings(comparison, width))]
            parts += [list(_findings(comparison, width)), list(_notices(comparison, width))]
        lines = separate_parts(parts)
    if compared.gate is not None:
        lines += [Text(), *_gate(compared, width)] if not quiet else _gate(compared, width)
    return draw_lines(lines, drawn_width, color, unicode)


def _word(judgement: str) -> str:
    return {"no sure difference": "UNCLEAR", "not measured": "NO RATE"}.get(judgement, judgement.upper())


def _title(comparison: Comparison, width: int) -> Iterator[Text]:
    names = [shorten(arm.name, (width - 4) // 2) for arm in (comparison.before, comparison.after)]
    yield Text(f" {' → '.join(names)}", "bold underline")


def _speeds(compared: Compared, width: int) -> Iterator[Text]:
    arms: list[tuple[Arm, MeasuredGain | None]] = [(compared.baseline, None)]
    arms += [(comparison.after, comparison.gain) for comparison in compared.comparisons]
    columns = [list(column) for column in zip(_HEAD, *(_speed(arm, gain) for arm, gain in arms), strict=True)]
    for name in _DISPENSABLE:
        if _left_for_names(columns, width) < min(_SHORTEST_NAME, _widest(columns[0])):
            columns = [column for column in columns if column[0] != name]
    longest = min(_LONGEST_NAME, max(_SHORTEST_NAME, _left_for_names(columns, width)))
    columns[0] = [shorten(name, longest) for name in columns[0]]
    # Names begin at the left, figures end at the right.
    aligned = [[word.ljust(_widest(columns[0])) for word in columns[0]]]
    aligned += [[word.rjust(_widest(column)) for word in column] for column in columns[1:-1]]
    for number, row in enumerate(zip(*aligned, columns[-1], strict=True)):
        yield Text(" " + "  ".join(row), "bold" if number == 0 else "")
    for comparison in compared.comparisons:
        if comparison.ordinary_gain is not None:
            words = f"without pauses and other rare long steps: {with_interval(comparison.ordinary_gain, 3)}"
            name = (
                shorten(comparison.after.name, max(8, width - len(words) - 2)) if len(compared.comparisons) > 1 else ""
            )
            lines = textwrap.wrap(f"{name} {words}".strip(), max(20, width - 1), break_on_hyphens=False)
            yield from (Text(f" {line}", "dim") for line in lines)


def _widest(words: Sequence[str]) -> int:
    return max(len(word) for word in words)


def _left_for_names(columns: Sequence[Sequence[str]], width: int) -> int:
    return width - 1 - sum(2 + _widest(column) for column in columns[1:])


def _speed(arm: Arm, gain: MeasuredGain | None) -> tuple[str, ...]:
    return (
        clean(arm.name),
        told(arm.samples_per_s, figure),
        told(arm.steps_per_s, figure),
        told(arm.step_ms, milliseconds),
        "–" if arm.samples_per_step is None else f"{arm.samples_per_step:.4g}",
        "" if gain is None else with_interval(gain, 3),
    )


def _phases(comparison: Comparison) -> Iterator[Text]:
    """Of a step; of a sample where batches differ in size, since then steps do not compare."""
    shown = [change for change in comparison.phases if max(change.share) >= _SMALL]
    if not shown:
        return
    by_sample = not comparison.same_batch and all(change.us_per_sample is not None for change in shown)
    what = "Where the time per sample goes" if by_sample else "Where the step time goes"
    rows = [_phase(change, by_sample) for change in shown]
    widths = [max(len(row[at]) for row in rows) for at in range(3)]
    yield Text(f" {what}", "bold")
    for change, row in zip(shown, rows, strict=True):
        cells = [word.rjust(room) for word, room in zip(row, widths, strict=True)]
        yield add_label(change.phase, Text(f"{cells[0]}  →  {cells[1]}   {cells[2]}"), PHASE_STYLE[change.phase])


def _phase(change: PhaseChange, by_sample: bool) -> tuple[str, str, str]:
    values = change.ms_of(by_sample)
    words = [f"{milliseconds(ms)} {percent(share):>4}" for ms, share in zip(values, change.share, strict=True)]
    difference = values[1] - values[0]
    if abs(difference) < _NOTHING_MS:
        return words[0], words[1], "same"
    return words[0], words[1], f"{'+' if difference > 0 else '-'}{milliseconds(abs(difference))}"


def _settings(comparison: Comparison, width: int) -> Iterator[Text]:
    yield Text(" Different settings", "bold")
    if not comparison.settings:
        yield add_label("", Text("none recorded"))
    last = ""
    for change in comparison.settings:
        label, last = ("" if change.group == last else change.group), change.group
        if len(label) > LABEL:
            yield Text(f" {shorten(label, width - 1)}", "bold")
            label = ""
        yield from wrap_sentence(label, _setting(change), width)


def _setting(change: SettingChange) -> str:
    before, after = (_value(value) for value in (change.before, change.after))
    return f"{change.name} {before} → {after}".strip()


def _value(value: object) -> str:
    if value is None:
        return "–"
    words = " ".join(str(item) for item in value) if isinstance(value, list | tuple) else str(value)
    return shorten(words, _LONGEST_VALUE)


def _findings(comparison: Comparison, width: int) -> Iterator[Text]:
    if comparison.gone or comparison.new or comparison.stayed:
        yield Text(" Findings", "bold")
    kinds: Sequence[tuple[str, Sequence[Finding], str]] = (
        ("gone", comparison.gone, "green"),
        ("new", comparison.new, "red"),
        ("in both", comparison.stayed, ""),
    )
    for label, found, style in kinds:
        for number, finding in enumerate(found):
            yield from wrap_sentence(label if number == 0 else "", _finding(finding), width, style)


def _finding(finding: Finding) -> str:
    place = "" if finding.location is None else f", {shorten(finding.location.file, 40)}:{finding.location.line}"
    return f"{finding.code} {finding.title}{place}"


def _notices(comparison: Comparison, width: int) -> Iterator[Text]:
    for number, notice in enumerate(comparison.notices):
        yield from wrap_sentence("Note" if number == 0 else "", notice, width)


def _gate(compared: Compared, width: int) -> list[Text]:
    gate = compared.gate
    assert gate is not None
    names = f"{' and '.join(gate.failed)} {'is' if len(gate.failed) == 1 else 'are'}"
    what = f"failed: {names}" if gate.failed else "passed: no run is"
    why = "fails only if the whole 95% interval is below it"
    words = f"{what} clearly below {100 * gate.least:.4g}% of the first ({why})"
    return wrap_sentence("Gate", words, width, "bold red" if gate.failed else "bold green")

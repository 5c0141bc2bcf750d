"""Lines of the user's code, the loops and `with` blocks that they are in, and the host time they take.

For problems of several families.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from flatout.records.evidence import Evidence, OpCost
from flatout.records.ledger import SCRIPT
from flatout.records.report import LineCost, Location
from flatout.source.loops import TextLoop, find_text_loops
from flatout.source.syntax.module import parse_text

# Phases in which the training thread runs the user's own code.
_OWN = ("forward", "other")


def lines_in(run: Evidence, *phases: str) -> list[LineCost]:
    """The user's lines that were seen in these phases."""
    return [line for line in run.all_lines or run.report.lines if line.phase in phases]


def host_lines(run: Evidence) -> tuple[LineCost, ...]:
    """The user's lines between the passes and in the forward pass, the dearest first."""
    return tuple(sorted(lines_in(run, *_OWN), key=lambda line: -line.ms))


def waiting_lines(run: Evidence) -> frozenset[Location]:
    """Lines of the step that mostly wait, whatever else they do: start the process that is waited for, say."""
    more: dict[Location, float] = defaultdict(float)
    for entry in run.ledger.entries:
        if entry.part == "waiting" or entry.part in SCRIPT:
            more[entry.location] += entry.ms if entry.part == "waiting" else -entry.ms
    return frozenset(place for place, ms in more.items() if ms > 0)


def ms_at(run: Evidence, location: Location) -> float:
    """Host milliseconds a step at one line."""
    return sum(line.ms for line in host_lines(run) if line.location == location)


def text_at(run: Evidence, location: Location) -> str:
    """The source of a line without its indent; empty where it is not known."""
    known = run.text_at(location)
    if known or location.file not in run.files:
        return known
    lines = run.files[location.file].splitlines()
    return lines[location.line - 1].strip() if 1 <= location.line <= len(lines) else ""


def place_name(location: Location) -> str:
    """A line as a sentence names it: the file without its folders, and the line's number."""
    name = location.file.replace("\\", "/").rsplit("/", 1)[-1]
    return f"{name}:{location.line}"


def function_spans(text: str, name: str) -> list[range]:
    """The lines of the functions of a file that have this name."""
    definitions = [made.definition for made in parse_text(text).functions if made.name == name]
    return [range(plain.lineno, (plain.end_lineno or plain.lineno) + 1) for plain in definitions if plain is not None]


# Python loops over samples or elements in that code.


# What is left of a loop that is done at once: the calls that do it, however many iterations they replace, and what is
# computed. Of loops of 5.8, 6.3, 5.7, 7.2 and 33 ms a step 0.8, 0.5, 1.0, 0.9 and 1.4 ms were left; of one over the
# pixels of a sample, 12 ms, less than 0.1. Of iterations that call a module, or are few, half may be left.
_CALLS_MS, _CALLS_OF_SAMPLE_MS, _COMPUTED, _LEFT_AT_WORST = 0.8, 0.1, 0.02, 0.5
# In the evidence of a finding that names such a loop: its lines. Then the cause is known, whatever the problem is.
LOOP = "loop_lines"


@dataclass(frozen=True, slots=True)
class HotLoop:
    loop: TextLoop
    # Of its own and of functions that it calls.
    lines: list[LineCost]

    @property
    def ms(self) -> float:
        return sum(line.ms for line in self.lines)

    @property
    def share(self) -> float:
        """Of what its lines are a part of: the step, or making a sample."""
        return sum(line.share for line in self.lines)

    @property
    def collected_ms(self) -> float:
        """What collecting garbage takes of it: that begins where objects are made."""
        return sum(line.ms for line in self.lines if line.phase == "gc")

    def left(self, of_sample: bool = False) -> tuple[float, float, float]:
        """Part of its time that is left when it is done at once: at worst, as expected, at best.

        `of_sample`: the time of the lines is that of one sample, not of a step.
        """
        if self.loop.heavy and self.loop.kind != "modules":
            return 1.0, _LEFT_AT_WORST, 0.0
        calls_ms = _CALLS_OF_SAMPLE_MS if of_sample else _CALLS_MS
        return _LEFT_AT_WORST, min(_LEFT_AT_WORST, _COMPUTED + calls_ms / max(self.ms, 1e-9)), 0.0


def find_hot_loops(run: Evidence, lines: Sequence[LineCost], stepping: Sequence[LineCost] = ()) -> list[HotLoop]:
    """The outermost loops that these lines are in, or are called from; without those that hold a line that steps."""
    found = []
    for file, text in run.files.items():
        here = [line for line in lines if line.location.file == file]
        steps = [line for line in stepping if line.location.file == file]
        known = [
            loop
            for loop in (find_text_loops(text) if here else ())
            # Not the training loop itself, told by what it calls or by lines of it that train.
            if not loop.trains
            and not any(loop.holds(line.location.line) or line.function in loop.calls for line in steps)
            and loop.kind != "other"
            and (loop.kind != "modules" or _calls_many_small(run, file, loop))
        ]
        for loop in known:
            if not any(outer is not loop and outer.first <= loop.first and loop.last <= outer.last for outer in known):
                found.append(HotLoop(loop, [line for line in here if is_of_loop(line, loop, text)]))
    return [hot for hot in found if hot.lines]


# A loop over modules is none of layers from so many on, and if each is so small that calling it takes most of its time.
_MANY, _SMALL_MS = 16, 0.5


def _calls_many_small(run: Evidence, file: str, loop: TextLoop) -> bool:
    """By a window over lines; where there was none, it is not known."""
    costs = [cost for cost in run.op_costs if cost.location.file == file and loop.holds(cost.location.line)]
    calls = max((cost.calls for cost in costs), default=0.0)
    return calls >= _MANY and sum(cost.forward_ms for cost in costs) < _SMALL_MS * calls


# A loop is worth saying something about from this part of the step on.
_WORTH = 0.05


def find_costly_loops(run: Evidence) -> list[HotLoop]:
    """Loops over samples or elements, between the passes and in the forward pass, that take a part of the step."""
    lines = sorted(lines_in(run, *_OWN, "gc"), key=lambda line: -line.ms)
    found = find_hot_loops(run, lines, lines_in(run, "backward", "optimizer", "data"))
    return [hot for hot in found if hot.ms >= _WORTH * run.step_ms]


def is_of_loop(line: LineCost | OpCost, loop: TextLoop, text: str) -> bool:
    """Is the line in the loop, or in a function of the file that the loop calls?"""
    number = line.location.line
    if loop.holds(number):
        return True
    called = [function.definition for function in parse_text(text).functions if function.name in loop.calls]
    return any(plain is not None and plain.lineno <= number <= (plain.end_lineno or 0) for plain in called)


# Bodies of `with` statements, and whether the training ran inside them.


def find_around_training(run: Evidence, opens: Callable[[ast.Call, str], bool]) -> Location | None:
    """The first `with` whose call of torch `opens` accepts, given with its name, and in whose body a line trains."""
    trains = [line.location for line in lines_in(run, "backward", "optimizer")]
    for file, text in run.files.items():
        module = parse_text(text)
        imported = {
            name
            for name, brought in module.imports.items()
            if brought.attribute is not None and module.library_of(name) == "torch"
        }
        for block in _find_blocks(text):
            calls = [item.context_expr for item in block.items if isinstance(item.context_expr, ast.Call)]
            named = [(call, ast.unparse(call.func)) for call in calls]
            of_torch = [(call, name) for call, name in named if name.split(".")[0] in {"torch", *imported}]
            inside = range(block.lineno, (block.end_lineno or block.lineno) + 1)
            is_around = any(place.file == file and place.line in inside for place in trains)
            if is_around and any(opens(call, name) for call, name in of_torch):
                return Location(file, block.lineno)
    return None


@lru_cache(maxsize=32)
def _find_blocks(text: str) -> tuple[ast.With, ...]:
    return tuple(node for node in ast.walk(parse_text(text).tree) if isinstance(node, ast.With))

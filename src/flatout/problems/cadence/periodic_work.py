"""Work that the training never uses takes much of the run.

What it is: in each step, or under `if step % n == 0:`, the script draws samples from its model, makes previews,
computes metrics, gradients or statistics that nothing in the training uses, and that takes long.

Why the GPU idles: it does not always; but what it does then trains nothing.

How it shows in a run: the calls that led to where the training thread was seen go through such a statement, for a tenth
of the time or more. That nothing uses it is told by the names in the text: what the statement makes or may change is
followed through the step and the next one, and reaches nothing that trains. Evaluations, checkpoints and logging that
are known as such have problems of their own.

The fix: do it every n-th step, raise n, take fewer samples or a smaller preview, or do it at the end of an epoch.

What to expect: what it takes, divided by how much less often it is done.

When it is fine: the training needs it so often, as a buffer that is filled or a target that is computed anew; where the
loop reads a result, nothing is said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from flatout.model.edits import Edits, LessHost
from flatout.problems.cadence.pauses import Block, exposed_ms, interval_factor, paths_through, periodic_blocks
from flatout.problems.found import KEEPS_FROM_HEALTH, FoundInRun
from flatout.problems.hot_lines import place_name
from flatout.records.evidence import Evidence
from flatout.records.ledger import CallPath
from flatout.records.message import message
from flatout.records.report import Location
from flatout.source.flow.unused_work import unused_blocks

CODE = "CA606"
COMES_FROM = ("CA601", "CA603", "CA604", "CA605", "HO415")
# Of what is seen in a statement: an update of weights, or a batch, is what the training is there for.
_TRAINING, _HARDLY = ("optimizer", "data"), 0.05
# A line that has this part of what is done is where it is done; else it is done where it divides.
_MOST = 0.8


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    blocks = [(file, block) for file, text in run.files.items() for block in periodic_blocks(text)]
    unused = [(file, block) for file, text in run.files.items() for block in unused_blocks(text)]
    paths = list(dict.fromkeys([*paths_through(run, blocks), *_paths_of_unused(run, unused)]))
    blocks += unused
    ms = exposed_ms(run, sum(path.ms for path in paths), each_ms=0.0)
    if ms < KEEPS_FROM_HEALTH * run.step_ms:
        return
    by_line: dict[Location, float] = defaultdict(float)
    by_phase: dict[str, float] = defaultdict(float)
    for path in paths:
        by_phase[path.phase] += path.ms
        by_line[_line_in(path, blocks)] += path.ms
    worst = _where_it_divides(run, paths, max(by_line, key=lambda place: by_line[place]))
    times = interval_factor(run, ms)
    part = (1 - 1 / times) * ms / sum(by_phase.values())
    yield FoundInRun(
        location=worst,
        evidence={
            "work_ms_per_step": round(ms, 2),
            "work_share": round(ms / run.step_ms, 4),
            "interval_times": times,
        },
        cause=message("ca606.cause", line=place_name(worst), ms=ms, step_ms=run.step_ms),
        change=message("ca606.change", times=times),
        edits=Edits(
            tuple(
                LessHost(part * phase_ms, phase, of_model=phase == "backward") for phase, phase_ms in by_phase.items()
            )
        ),
    )


def _line_in(path: CallPath, blocks: Sequence[Block]) -> Location:
    """The innermost one that is in such a statement itself."""
    return next(place for place in reversed(path.lines) if any(_holds(block, place) for block in blocks))


def _where_it_divides(run: Evidence, paths: Sequence[CallPath], place: Location) -> Location:
    """Down the calls, as long as nearly all is done by one of them that serves nothing else."""
    shared = {line for path in set(run.call_paths) - set(paths) for line in path.lines}
    below = [path.lines[path.lines.index(place) :] for path in paths if place in path.lines]
    ms = [path.ms for path in paths if place in path.lines]
    for depth in range(max(map(len, below), default=0)):
        by_line: dict[Location, float] = defaultdict(float)
        for lines, each_ms in zip(below, ms, strict=True):
            if len(lines) > depth + 1 and lines[depth] == place:
                by_line[lines[depth + 1]] += each_ms
        here_ms = sum(
            each for lines, each in zip(below, ms, strict=True) if len(lines) > depth and lines[depth] == place
        )
        inner = max(by_line, key=lambda line: by_line[line], default=None)
        if inner is None or inner in shared or by_line[inner] < here_ms - sum(by_line.values()):
            break
        place = inner
        if by_line[inner] < _MOST * here_ms:
            break
    return place


def _paths_of_unused(run: Evidence, blocks: Sequence[Block]) -> list[CallPath]:
    """All that is done in these statements, gradients that are taken there included."""
    found: list[CallPath] = []
    for block in blocks:
        through = [path for path in run.call_paths if any(_holds(block, place) for place in path.lines)]
        trained_ms = sum(path.ms for path in through if path.phase in _TRAINING)
        if trained_ms <= _HARDLY * sum(path.ms for path in through):
            found += [path for path in through if path.phase not in _TRAINING]
    return found


def _holds(block: Block, place: Location) -> bool:
    file, lines = block
    return place.file == file and place.line in lines

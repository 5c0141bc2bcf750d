"""What pauses of the training (evaluation, checkpoints, logging, output) cost a run, and what they would cost:
if they came less often, or if an evaluation were fed better. Shared by the problems of cadence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from flatout.problems.hot_lines import host_lines, lines_in
from flatout.problems.prediction import WORTH, by_step, device_work_ms
from flatout.records.evidence import Evidence, LoaderUse
from flatout.records.message import message
from flatout.records.report import Gain, Location, PauseSite
from flatout.source.syntax.module import parse_text
from flatout.source.syntax.nodes import called_name

Pause = Literal["evaluation", "checkpoints", "logging", "progress"]
# A pause that takes this share of the run is not worth a thought.
SMALL = 0.02
_INTERVALS = (2, 3, 4, 5, 10, 20, 50, 100, 200, 500, 1000)
# Of what a longer interval should save, this much is promised.
_CAUTIOUS = 0.75


def pause_ms(run: Evidence, phase: str) -> float:
    """Milliseconds a step of the rank that pauses most: the others wait for it."""
    by_rank = [rank.phase_ms.get(phase, 0.0) for rank in run.report.ranks]
    return max([run.phase(phase).ms, *by_rank])


def prepared_ms(run: Evidence, sites: Sequence[PauseSite]) -> float:
    """What a function that pauses, with those that only serve it, takes beside the pause itself: it makes the picture.

    Not one that trains as well: what it does besides is its proper work.
    """
    training = lines_in(run, "backward", "optimizer", "data")
    trains = {(line.location.file, line.function) for line in training}
    pauses = {(site.location.file, site.function) for site in sites} - trains
    pauses |= {(file, name) for file, of in pauses for name in exclusive_helpers(run.files.get(file, ""), of)} - trains
    return sum(line.ms for line in host_lines(run) if (line.location.file, line.function) in pauses)


def exposed_ms(run: Evidence, ms: float, each_ms: float) -> float:
    """What of `ms` a step delays the training, if one pause lasts `each_ms`.

    A GPU with work in its queue does not notice a short pause of the host: then its own work sets the pace. A pause
    longer than two steps outlasts any queue.
    """
    if not run.on_gpu or each_ms > 2 * run.step_ms:
        return ms
    work_ms = device_work_ms(run)
    return 0.0 if work_ms is None else min(ms, max(0.0, run.step_ms - work_ms))


def interval_factor(run: Evidence, ms: float, most: int = _INTERVALS[-1]) -> int:
    """The interval, as a multiple of what it is, at which the pause is small; `most` at most."""
    rest_ms = max(run.step_ms - ms, 1e-9)
    for times in _INTERVALS:
        if times >= most or ms / times <= SMALL * (rest_ms + ms / times):
            return min(times, most)
    return most


def gain_if_rarer(run: Evidence, ms: float, times: int, pause: Pause) -> Gain | None:
    """A pause of `ms` a step that comes so many times less often."""
    saved_ms, step_ms = ms * (1 - 1 / times), run.step_ms
    method = message("cadence.gain", step_ms=step_ms, ms=ms, pause=message(f"cadence.{pause}"), times=times)
    return by_step(run, step_ms - _CAUTIOUS * saved_ms, step_ms - saved_ms, step_ms - ms, method)


@dataclass(frozen=True, slots=True)
class SitePauses:
    """Pauses of one kind at several sites: how many, how long each is, and what they delay a step."""

    count: int
    each_ms: float
    ms: float
    worst: PauseSite
    longest_s: float


def measure_pauses(run: Evidence, sites: list[PauseSite], phase_ms: float) -> SitePauses | None:
    """`phase_ms` is what they take of a step. None if they come once, or are too short to matter."""
    count = sum(site.count for site in sites)
    if count < 2:
        return None  # one at the end, or at the beginning, is no matter of how often
    prepared = prepared_ms(run, sites)
    each_ms = 1e3 * sum(site.total_s for site in sites) / count + prepared * run.report.run.steps / count
    ms = exposed_ms(run, phase_ms + prepared, each_ms)
    if ms < WORTH * run.step_ms:
        return None
    worst = max(sites, key=lambda site: site.total_s)
    return SitePauses(count, each_ms, ms, worst, max(site.max_s for site in sites))


def steady_steps(run: Evidence) -> int:
    return max(1, run.report.run.steps - run.report.warmup_steps)


# Functions of a file that only serve another one of it.


@lru_cache(maxsize=64)
def exclusive_helpers(text: str, function: str) -> frozenset[str]:
    """Functions that this one calls, itself or through others, and nothing else in the file does."""
    functions = parse_text(text).functions
    defined = {made.name for made in functions if made.definition is not None}
    # From which functions each is called; the file's own body is one of them.
    callers: dict[str, set[str]] = {name: set() for name in defined}
    for made in functions:
        for call in made.calls:
            callers.get(called_name(call), set()).add(made.name)
    serving = {function}
    while True:
        more = {name for name, by in callers.items() if by and by <= serving} - serving
        if not more:
            return frozenset(serving - {function})
        serving |= more


# Which output is a progress display and which a log: told by the text of the line.

_PROGRESS = re.compile(
    r"tqdm|trange|pbar|prog(ress)?_?bar|\bbar\.|set_postfix|set_description|\.refresh\(", re.IGNORECASE
)
_PRINTS = re.compile(r"^(print|tqdm\.write|sys\.std(out|err)\.(write|flush))\(")
_CALL = re.compile(r"([A-Za-z_][A-Za-z_0-9.]*)\(")
# What a printed line may call without the call being what takes the time.
_CHEAP = {"print", "write", "flush", "format", "len", "round", "int", "float", "str", "repr", "item", "time", "join",
          "perf_counter", "get_last_lr", "strftime", "rjust", "ljust", "center", "now"}  # fmt: skip
_IMAGES = re.compile(
    r"add_(image|images|figure|video|image_with_boxes|histogram)|savefig|imwrite|imsave|save_image|\.save\("
)


def is_progress(run: Evidence, site: PauseSite) -> bool:
    return bool(_PROGRESS.search(run.text_at(site.location)))


def is_image(run: Evidence, site: PauseSite) -> bool:
    return bool(_IMAGES.search(run.text_at(site.location)))


def printed_ms(run: Evidence) -> dict[Location, float]:
    """Milliseconds a step under lines that do nothing but print."""
    found: dict[Location, float] = {}
    for line in run.all_lines:
        text = run.text_at(line.location)
        only_prints = _PRINTS.match(text) and all(name.rsplit(".", 1)[-1] in _CHEAP for name in _CALL.findall(text))
        if line.phase in ("other", "forward") and only_prints:
            found[line.location] = found.get(line.location, 0.0) + line.ms
    return found


def logged_ms(run: Evidence, sites: list[PauseSite], phase_ms: float) -> float:
    """What these sites took of the steps' logging; totals of sites are of the whole run, so only their part counts."""
    total_s = sum(site.total_s for site in run.report.pauses if site.op == "logging")
    return phase_ms * sum(site.total_s for site in sites) / total_s if total_s > 0 else 0.0


# What an evaluation consists of, and how long it would take if its loader were as fast as the training's.

# Workers slow each other down a little.
_CONTENTION = 1.3
# A loader at this share of what its workers can give is what the evaluation waits for.
_KEEPS_BUSY = 0.8


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation as it was, in milliseconds: all of it, loading by one process, the rest; and what it reads."""

    loader: LoaderUse
    each_ms: float
    loading_ms: float
    computing_ms: float
    samples: float
    # What the training's forward pass takes for as many samples.
    forward_ms: float


@dataclass(frozen=True, slots=True)
class BetterFeed:
    """The same evaluation with more workers, or larger batches: in milliseconds, at worst and as the figures say."""

    workers: int
    batch_size: int
    each_ms: float
    cautious_ms: float


def evaluation_loader(run: Evidence) -> LoaderUse | None:
    """The loader that most evaluated samples come from."""
    trains = set(run.live_torch.get("training_loaders", ()))
    others = [use for use in run.loaders if not use.trains and use.number not in trains and use.epochs]
    return max(others, key=lambda use: _samples(use) * use.epochs, default=None)


def find_evaluation(run: Evidence) -> Evaluation | None:
    """None without a loader of its own, or if too little of it is known."""
    use, ms = evaluation_loader(run), pause_ms(run, "eval")
    if use is None or run.evaluations is None or not ms or use.sample_ms is None or not run.samples_per_step:
        return None
    samples = _samples(use)
    each_ms = ms * steady_steps(run) / run.evaluations.count
    # Several iterators for one evaluation, or a fraction of one, would be another loader's.
    if not samples or not 0.5 <= use.epochs / run.evaluations.count <= 3:
        return None
    device_ms = run.report.gpu.device_ms.get("forward", 0.0) if run.report.gpu else 0.0
    forward_ms = max(run.phase("forward").ms, device_ms) * samples / run.samples_per_step
    loading_ms = use.sample_ms * samples
    if not use.workers:
        loading_ms = min(loading_ms, each_ms)
        computing_ms = each_ms - loading_ms
    elif loading_ms / use.workers >= _KEEPS_BUSY * each_ms:
        computing_ms = min(forward_ms, each_ms)
    else:
        computing_ms = each_ms
    return Evaluation(use, each_ms, loading_ms, computing_ms, samples, forward_ms)


def _samples(use: LoaderUse) -> float:
    length = use.settings.get("dataset_len")
    if length:
        return float(length)
    return use.cost.samples / max(1, use.epochs) if use.cost is not None else 0.0


def improve_feed(run: Evidence, evaluation: Evaluation) -> BetterFeed | None:
    """The evaluation with the batch size of the training, and with workers as far as there are processors."""
    train, spare = run.training_loader, math.floor(run.cpus) - max(1, run.report.run.ranks)
    batch_size, computing_ms = evaluation.loader.batch_size or 1, evaluation.computing_ms
    larger = train.batch_size if train is not None and train.batch_size else 1
    if 4 * batch_size <= larger and computing_ms > 2 * evaluation.forward_ms:
        batch_size, computing_ms = larger, evaluation.forward_ms
    waits = (
        evaluation.loading_ms / max(1, evaluation.loader.workers)
        >= (0.3 if not evaluation.loader.workers else _KEEPS_BUSY) * evaluation.each_ms
    )
    workers = evaluation.loader.workers
    if waits and spare > workers:
        wanted = math.ceil(_CONTENTION * evaluation.loading_ms / max(computing_ms, 1e-6))
        workers = max(workers, min(wanted, spare, math.ceil(evaluation.samples / batch_size)))
    if workers == evaluation.loader.workers and batch_size == evaluation.loader.batch_size:
        return None
    if not workers:
        each_ms = computing_ms + evaluation.loading_ms
        return BetterFeed(workers, batch_size, each_ms, evaluation.each_ms - 0.5 * (evaluation.each_ms - each_ms))
    # All processors together doing the work. On a CPU the computing takes as many as torch has threads.
    threads = 1.0 if run.on_gpu else float(run.live_torch.get("num_threads") or 1)
    processors_ms = (computing_ms * min(threads, run.cpus) + evaluation.loading_ms) / max(run.cpus, 1.0)
    each_ms = max(computing_ms, evaluation.loading_ms / workers, processors_ms)
    cautious_ms = max(computing_ms, _CONTENTION * each_ms)
    return BetterFeed(workers, batch_size, min(each_ms, evaluation.each_ms), min(cautious_ms, evaluation.each_ms))


def is_slow_itself(run: Evidence, evaluation: Evaluation) -> bool:
    """A sample takes longer to evaluate than to train on, backward and all: then it is not for its being frequent."""
    pauses_ms = sum(run.phase(name).ms for name in ("eval", "checkpoint", "logging"))
    trained_ms = (run.step_ms - pauses_ms) / (run.samples_per_step or 1.0)
    return evaluation.each_ms / evaluation.samples > trained_ms

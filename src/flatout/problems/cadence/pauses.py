"""Pauses of a training: where evaluations, checkpoints, pictures and output stand in source and how often they come,
what they cost a run, and what they would cost if they came less often, or if an evaluation were fed better.

Shared by the problems of cadence.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from flatout.model.edits import Edits, LessPause
from flatout.model.measured import device_work_ms
from flatout.problems.found import WORTH, step_of
from flatout.problems.hot_lines import function_spans, host_lines, lines_in, ms_at
from flatout.records.evidence import Evidence, LoaderUse
from flatout.records.ledger import CallPath
from flatout.records.message import Message, message
from flatout.records.report import Location, PauseSite
from flatout.source.code import Code
from flatout.source.flow.guards import is_evaluation
from flatout.source.syntax.module import Function, full_name, parse_text
from flatout.source.syntax.nodes import (
    all_names_in,
    called_name,
    dotted_name,
    has_decorator,
    short_text,
    walk_body,
    walk_scope,
)
from flatout.source.training.cadence import find_frequent_nodes, runs_each_step
from flatout.source.training.regions import Region

_SAVES = {
    "save_pretrained",
    "save_checkpoint",
    "save_model",
    "save_state",
    "save_weights",
    "save_network",
    "save_networks",
}
_HELPER = re.compile(r"^_?(save_(checkpoint|ckpt|model|weights|snapshot|state|net)|snapshot|checkpoint)", re.I)
_PICTURES = {
    "add_image", "add_images", "add_figure", "add_histogram", "add_video", "add_embedding", "add_mesh", "savefig",
    "imwrite", "imsave", "save_image", "add_pr_curve", "log_image", "log_images", "log_figure", "add_graph",
}  # fmt: skip
_OF_WANDB = {"Image", "Histogram", "Video", "Audio", "Object3D"}
_IN_MEMORY = re.compile(r"buf|bytes|stream", re.I)
_LOGGER = re.compile(r"^_?(logger|log|logging|LOGGER|LOG)$")
_LOADER = re.compile(r"loader|dataloader|(^|_)(dl|batches|dataset|data|ds)$|iterator", re.I)
_NO_GRADIENTS = ("no_grad", "inference_mode")
_OFTEN = 10
# Phases in which the script's own lines tell what is done, and those of the training itself.
_OWN, _PASSES = ("forward", "other"), ("backward", "optimizer", "data")


@dataclass(frozen=True, slots=True)
class Pause:
    """A node that makes every `period`-th step pause."""

    region: Region
    node: ast.AST
    period: int = 1


def how_often(pause: Pause) -> Message:
    if pause.period == 1:
        return message("problems.in_step", step=step_of(pause.region))
    return message("problems.every_few_steps", period=pause.period)


def find_checkpoints(code: Code) -> Iterator[Pause]:
    return _often(code, _saves)


def find_pictures(code: Code) -> Iterator[Pause]:
    def draws(call: ast.Call, function: Function, _: Code) -> bool:
        name = called_name(call)
        return name in _PICTURES or (name in _OF_WANDB and full_name(call.func, function.module) == f"wandb.{name}")

    return _often(code, draws)


def _often(code: Code, wanted: Callable[[ast.Call, Function, Code], bool]) -> Iterator[Pause]:
    """Calls of a kind at each step or every few steps; none inside another."""
    seen: set[int] = set()
    for region in code.training.regions:
        for inner in find_frequent_nodes(region, code.values, _OFTEN):
            node = inner.node
            if isinstance(node, ast.Call) and id(node) not in seen and wanted(node, region.function, code):
                seen |= {id(part) for part in walk_scope(node)}
                # The calls that it makes for that are the same pause.
                seen |= {id(call) for callee in code.project.resolve(node, region.function) for call in callee.calls}
                yield Pause(region, node, inner.period)


def _saves(call: ast.Call, function: Function, code: Code) -> bool:
    """Does it write a checkpoint, by its name, or as a function of the project that does?"""
    name = called_name(call)
    if not (name == "save" or name in _SAVES or _HELPER.search(name)):
        return False
    callees = code.project.resolve(call, function)
    if callees:
        return any(_writes_checkpoint(inner, callee) for callee in callees for inner in callee.calls)
    return _writes_checkpoint(call, function)


def _writes_checkpoint(call: ast.Call, function: Function) -> bool:
    name = called_name(call)
    if name != "save":
        return name in _SAVES or bool(_HELPER.search(name))
    # `image.save(path)` and `np.save` are not checkpoints, and a manager's `save(step)` may have an interval.
    into = short_text(call.args[1]) if len(call.args) > 1 else ""
    return full_name(call.func, function.module) in ("torch.save", "xm.save") and not _IN_MEMORY.search(into)


def find_printed_lines(code: Code) -> Iterator[Pause]:
    """Lines of output in each step, unless they are a sync, which is a problem of its own."""
    waits = {
        (id(sync.region.module), line)
        for sync in code.syncs
        for line in range(sync.node.lineno, (sync.node.end_lineno or sync.node.lineno) + 1)
    }
    for region, _, node in code.calls_each_step("print", "info", "write"):
        if not runs_each_step(region, node):
            continue
        lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if (
            _prints(node)
            and not _hands_on(node, region.function)
            and not any((id(region.module), line) in waits for line in lines)
        ):
            yield Pause(region, node)


def _prints(call: ast.Call) -> bool:
    func = call.func
    if isinstance(func, ast.Name):
        # `print()` to a file is not shown to anybody.
        return func.id == "print" and not any(keyword.arg == "file" for keyword in call.keywords)
    owner = dotted_name(func.value) if isinstance(func, ast.Attribute) else ""
    if called_name(call) == "write":
        return owner in ("sys.stdout", "sys.stderr", "tqdm", "tqdm.tqdm")
    return called_name(call) == "info" and bool(_LOGGER.search(owner.split(".")[-1]))


def _hands_on(call: ast.Call, function: Function) -> bool:
    """`def log(text): print(text)`: its callers decide what is written, and how often."""
    names = function.parameters
    return bool(call.args) and all(
        isinstance(given, ast.Starred) or (isinstance(given, ast.Name) and given.id in names) for given in call.args
    )


def find_evaluations(code: Code) -> Iterator[Pause]:
    """Whole passes over the data without gradients, at each step or at every few."""
    seen: set[int] = set()
    for region in code.training.regions:
        for inner in find_frequent_nodes(region, code.values, _OFTEN) if region.loop is not None else ():
            node = inner.node
            if id(node) not in seen and (
                (isinstance(node, ast.Call) and _calls_evaluation(node, region.function, code))
                # `for x, y in val_loader:` in the body of the training loop.
                or (
                    isinstance(node, ast.For)
                    and _goes_over_data(node)
                    and any(is_evaluation(name) for name in all_names_in(node.iter))
                )
            ):
                seen |= {id(part) for part in walk_scope(node)}
                yield Pause(region, node, inner.period)


def _calls_evaluation(call: ast.Call, function: Function, code: Code) -> bool:
    for callee in code.project.resolve(call, function):
        if callee.definition is None or not is_evaluation(callee.name):
            continue
        loops = [node for node in walk_body(callee.node.body) if isinstance(node, ast.For)]
        is_without_gradients = has_decorator(callee.definition, _NO_GRADIENTS) or any(
            called_name(inner) in (*_NO_GRADIENTS, "eval", "set_grad_enabled") for inner in callee.calls
        )
        if is_without_gradients and any(_goes_over_data(loop) for loop in loops):
            return True
    return False


def _goes_over_data(loop: ast.For) -> bool:
    """Does it iterate over a whole loader, without leaving after a few batches?"""
    leaves = any(isinstance(node, ast.Break | ast.Return) for node in walk_body(loop.body))
    return not leaves and any(_LOADER.search(name) for name in all_names_in(loop.iter))


# A pause that takes this share of the run is not worth a thought.
SMALL = 0.02
_INTERVALS = (2, 3, 4, 5, 10, 20, 50, 100, 200, 500, 1000)


def pause_ms(run: Evidence, phase: str) -> float:
    """Milliseconds a step of the rank that pauses most: the others wait for it."""
    by_rank = [rank.phase_ms.get(phase, 0.0) for rank in run.report.ranks]
    return max([run.phase(phase).ms, *by_rank])


def prepared_ms(run: Evidence, sites: Sequence[PauseSite]) -> float:
    """What a function that pauses, with those that only serve it, takes beside the pause itself: it makes the picture.

    Not one that trains as well: what it does besides is its proper work, but for what is done under the same `if`.
    """
    training = lines_in(run, "backward", "optimizer", "data")
    trains = {(line.location.file, line.function) for line in training}
    # A look just after a pass is still counted to it.
    passing = {line.location for line in training if line.ms > ms_at(run, line.location)}
    pauses = {(site.location.file, site.function) for site in sites} - trains
    pauses |= {(file, name) for file, of in pauses for name in exclusive_helpers(run.files.get(file, ""), of)} - trains
    under = [
        (file, block)
        for file in {site.location.file for site in sites}
        for block in guarded_blocks(
            run.files.get(file, ""),
            frozenset(name for where, name in pauses if where == file),
            frozenset(site.location.line for site in sites if site.location.file == file),
        )
        if not any(place.file == file and place.line in block for place in passing)
    ]
    if run.call_paths:
        spans = [(file, span) for file, name in pauses for span in function_spans(run.files.get(file, ""), name)]
        return sum(path.ms for path in paths_through(run, [*under, *spans]))
    return sum(
        line.ms
        for line in host_lines(run)
        if (line.location.file, line.function) in pauses
        or any(line.location.file == file and line.location.line in block for file, block in under)
    )


# A file, and lines of it.
Block = tuple[str, range]


def paths_through(run: Evidence, blocks: Sequence[Block]) -> list[CallPath]:
    """What the script does, the model included, in these blocks and in all that is called there.

    Not in those that the training itself goes through: what they do besides is its proper work.
    """
    own: list[Block] = []
    for block in blocks:
        through = [path for path in run.call_paths if _is_through(path, block)]
        done_ms = sum(path.ms for path in through if path.phase in _OWN)
        # A look just after a pass is still counted to it.
        if done_ms > sum(path.ms for path in through if path.phase in _PASSES):
            own.append(block)
    return [path for path in run.call_paths if path.phase in _OWN and any(_is_through(path, block) for block in own)]


def _is_through(path: CallPath, block: Block) -> bool:
    file, lines = block
    return any(place.file == file and place.line in lines for place in path.lines)


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


def make_rarer(phase: str, ms: float, times: int) -> Edits:
    """A pause of `ms` a step comes so many times less often."""
    return Edits((LessPause(phase, ms * (1 - 1 / times), times),))


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


# What only every n-th step does, by the text: `if step % n == 0:`, and what follows `if step % n: return`.

_CHANGES = {"append", "extend", "add", "insert", "update", "push", "put", "store", "remember", "write_back"}


@lru_cache(maxsize=64)
def periodic_blocks(text: str) -> tuple[range, ...]:
    """Statements under a remainder, the outermost, of which the rest of the loop uses nothing."""
    module = parse_text(text)
    parents = {id(child): parent for parent in ast.walk(module.tree) for child in ast.iter_child_nodes(parent)}
    found: list[range] = []
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.If) or not _has_remainder(node.test):
            continue
        body = _behind(node, parents[id(node)]) if _only_leaves(node) else node.body
        if body and not _is_used_around(node, body, module.tree, parents):
            found.append(range(body[0].lineno, (body[-1].end_lineno or body[-1].lineno) + 1))
    return tuple(
        block
        for block in found
        if not any(other != block and other[0] <= block[0] and block[-1] <= other[-1] for other in found)
    )


def _has_remainder(test: ast.expr) -> bool:
    return any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) for node in ast.walk(test))


def _only_leaves(block: ast.If) -> bool:
    """`if step % n: return`"""
    only = block.body[0] if len(block.body) == 1 and not block.orelse else None
    return isinstance(only, ast.Continue) or (isinstance(only, ast.Return) and only.value is None)


def _behind(block: ast.If, parent: ast.AST) -> list[ast.stmt]:
    """The statements that follow it in the same body."""
    body: list[ast.stmt] = getattr(parent, "body", [])
    return body[body.index(block) + 1 :] if block in body else []


def _is_used_around(block: ast.If, body: Sequence[ast.stmt], tree: ast.AST, parents: Mapping[int, ast.AST]) -> bool:
    """Does the loop around it, else the function, read what its body binds or changes? Attributes are anybody's, but
    for what follows or precedes a training loop in the function that holds it.
    """
    inside = [node for statement in body for node in ast.walk(statement)]
    made = {node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    attributes = {node.attr for node in inside if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    for node in inside:
        changed = node.value if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
            changed = node.func.value
        if isinstance(changed, ast.Attribute):
            attributes.add(changed.attr)
        elif isinstance(changed, ast.Name):
            made.add(changed.id)
    around: ast.AST = block
    while id(around) in parents and not isinstance(
        around, ast.For | ast.While | ast.FunctionDef | ast.AsyncFunctionDef
    ):
        around = parents[id(around)]
    own = {id(node) for node in inside} | _beside_training(tree)
    return any(
        isinstance(node, ast.Name) and node.id in made and isinstance(node.ctx, ast.Load) and id(node) not in own
        for node in ast.walk(around)
    ) or any(
        isinstance(node, ast.Attribute) and node.attr in attributes and isinstance(node.ctx, ast.Load)
        for node in ast.walk(tree)
        if id(node) not in own
    )


def _beside_training(tree: ast.AST) -> set[int]:
    """Nodes of functions that hold a loop which calls backward, outside of that loop."""
    beside: set[int] = set()
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.Module):
            continue
        nodes = list(walk_scope(function))
        loops = [node for node in nodes if isinstance(node, ast.For | ast.While) and _calls_backward(node)]
        if loops:
            # What a scheduler is told after the loop is used by the next one.
            told = [node for node in nodes if isinstance(node, ast.Call) and called_name(node) == "step"]
            within = {id(node) for part in (*loops, *told) for node in ast.walk(part)}
            beside |= {id(node) for node in nodes if id(node) not in within}
    return beside


def _calls_backward(loop: ast.AST) -> bool:
    return any(isinstance(node, ast.Call) and called_name(node) == "backward" for node in ast.walk(loop))


# Functions of a file that only serve another one of it, and what is done under one condition with a pause.


@lru_cache(maxsize=64)
def guarded_blocks(text: str, functions: frozenset[str], lines: frozenset[int]) -> tuple[range, ...]:
    """Bodies of an `if` within a loop that call one of these functions, or hold one of these lines; the innermost."""
    loops = [node for node in ast.walk(parse_text(text).tree) if isinstance(node, ast.For | ast.While)]
    tests = {id(node): node for loop in loops for node in ast.walk(loop) if isinstance(node, ast.If)}
    found = set()
    for body in (node.body for node in tests.values()):
        inner = [node for node in body if not isinstance(node, ast.If)]
        calls = {called_name(node) for part in inner for node in ast.walk(part) if isinstance(node, ast.Call)}
        block = range(body[0].lineno, (body[-1].end_lineno or body[-1].lineno) + 1)
        if calls & functions or any(line in block for line in lines):
            found.add(block)
    return tuple(
        block
        for block in found
        if not any(other != block and other[0] in block and other[-1] in block for other in found)
    )


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


def for_output_ms(run: Evidence, printed: dict[Location, float]) -> float:
    """What functions that do nothing but print take beside these lines: they make what is printed."""
    lines = host_lines(run)
    names = {(line.location.file, line.function) for line in lines if line.location in printed}
    names = {(file, name) for file, name in names if gives_nothing(run.files.get(file, ""), name)}
    names -= {(line.location.file, line.function) for line in lines_in(run, "backward", "optimizer", "data")}
    return sum(
        line.ms for line in lines if (line.location.file, line.function) in names and line.location not in printed
    )


@lru_cache(maxsize=64)
def gives_nothing(text: str, function: str) -> bool:
    """Does a function of this name return nothing, and change nothing but its own names?"""
    named = [made.definition for made in parse_text(text).functions if made.name == function]
    nodes = [node for definition in named if definition is not None for node in ast.walk(definition)]
    kept = (ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal, ast.Delete)
    return bool(nodes) and not any(
        isinstance(node, kept)
        or (isinstance(node, ast.Return) and node.value is not None)
        or (isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store))
        for node in nodes
    )


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
    loading_ms = evaluation.loading_ms
    larger = train.batch_size if train is not None and train.batch_size else 1
    if 4 * batch_size <= larger and computing_ms > 2 * evaluation.forward_ms:
        loading_ms -= _collated_less_ms(evaluation, batch_size / larger)
        batch_size, computing_ms = larger, evaluation.forward_ms
    waits = (
        loading_ms / max(1, evaluation.loader.workers)
        >= (0.3 if not evaluation.loader.workers else _KEEPS_BUSY) * evaluation.each_ms
    )
    workers = evaluation.loader.workers
    if waits and spare > workers:
        wanted = math.ceil(_CONTENTION * loading_ms / max(computing_ms, 1e-6))
        workers = max(workers, min(wanted, spare, math.ceil(evaluation.samples / batch_size)))
    if workers == evaluation.loader.workers and batch_size == evaluation.loader.batch_size:
        return None
    if not workers:
        each_ms = computing_ms + loading_ms
        return BetterFeed(workers, batch_size, each_ms, evaluation.each_ms - 0.5 * (evaluation.each_ms - each_ms))
    # All processors together doing the work. On a CPU the computing takes as many as torch has threads.
    threads = 1.0 if run.on_gpu else float(run.live_torch.get("num_threads") or 1)
    processors_ms = (computing_ms * min(threads, run.cpus) + loading_ms) / max(run.cpus, 1.0)
    each_ms = max(computing_ms, loading_ms / workers, processors_ms)
    cautious_ms = max(computing_ms, _CONTENTION * each_ms)
    return BetterFeed(workers, batch_size, min(each_ms, evaluation.each_ms), min(cautious_ms, evaluation.each_ms))


def _collated_less_ms(evaluation: Evaluation, part: float) -> float:
    """What collating is spared where so small a part of the batches is made: it is done once for each of them."""
    cost = evaluation.loader.cost
    return 0.0 if cost is None else (1 - part) * cost.collate_ms_per_sample * evaluation.samples


def is_slow_itself(run: Evidence, evaluation: Evaluation) -> bool:
    """A sample takes longer to evaluate than to train on, backward and all: then it is not for its being frequent."""
    pauses_ms = sum(run.phase(name).ms for name in ("eval", "checkpoint", "logging"))
    trained_ms = (run.step_ms - pauses_ms) / (run.samples_per_step or 1.0)
    return evaluation.each_ms / evaluation.samples > trained_ms

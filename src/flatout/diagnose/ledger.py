"""Divides the steady step by line and nature, adds up what each part of it is spent on,
and says how long the training thread waits for the interpreter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from flatout.diagnose.machine import thread_shares, training_thread
from flatout.diagnose.ranks import Rank
from flatout.diagnose.sites import call_paths, ledger_entries
from flatout.records.evidence import InterpreterUse, OpCost
from flatout.records.ledger import PARTS, WAITING, CallPath, Ledger, LedgerEntry, Part
from flatout.records.report import Location, PhaseShare
from flatout.store.run import StoredRun

# Phases whose part does not depend on what is done in them.
_PART_OF_PHASE: dict[str, Part] = {
    "data": "batch",
    "h2d": "copy",
    "backward": "model",
    "optimizer": "optimizer",
    "sync": "device",
    "eval": "pause",
    "checkpoint": "pause",
    "logging": "pause",
    "gc": "gc",
}
# Fewer looks at a phase tell nothing of its lines.
_SOME_LOOKS = 5
# Phases in which the script's own lines tell what is done.
OWN_PHASES = ("forward", "other")


def make_ledger(ranks: Sequence[Rank], phases: Mapping[str, PhaseShare], costs: Sequence[OpCost] = ()) -> Ledger:
    """`costs`: what lines make in backward. Lines that make something there belong to the model, and so does native
    code that a function calls which makes a part of the graph: a plan of transport, a matching, a target.
    """
    entries = _pool_own(ledger_entries(ranks, phases), phases)
    on_graph = frozenset(cost.location for cost in costs if cost.backward_ops > 0) if costs else None
    passes = _lines_of_passes(entries)
    if on_graph is not None:
        on_graph |= _lines_of_losses(entries, costs, call_paths(ranks, phases))
    known = tuple(replace(entry, part=_part(entry, on_graph, passes)) for entry in entries)
    shares: dict[Part, float] = defaultdict(float)
    for entry in known:
        shares[entry.part] += entry.share
    for phase, part in _PART_OF_PHASE.items():
        # A phase in which no line was seen is what it is called.
        seen = sum(entry.share for entry in known if entry.phase == phase)
        shares[part] += max(0.0, phases[phase].share - seen) if phase in phases else 0.0
    shares["not measured"] += max(0.0, sum(phase.share for phase in phases.values()) - sum(shares.values()))
    return Ledger(known, {part: shares[part] for part in PARTS if shares[part] > 0})


def _lines_of_passes(entries: Sequence[LedgerEntry]) -> frozenset[Location]:
    """Lines that are mostly seen in a pass: a look at one just before or after the pass belongs to it as well."""
    looks: dict[Location, float] = defaultdict(float)
    for entry in entries:
        in_pass = entry.phase in ("data", "backward", "optimizer")
        looks[entry.location] += entry.looks if in_pass else -entry.looks
    return frozenset(place for place, more in looks.items() if more > 0)


def _lines_of_losses(
    entries: Sequence[LedgerEntry], costs: Sequence[OpCost], paths: Sequence[CallPath]
) -> frozenset[Location]:
    """Lines of native code that are mostly reached through a function, called by the loop, that makes graph as well."""
    native = {entry.location for entry in entries if entry.phase in OWN_PHASES and entry.nature == "native"}
    loops = {(entry.location.file, entry.function) for entry in entries if entry.phase in ("backward", "optimizer")}
    makers = {(cost.location.file, cost.function) for cost in costs if cost.backward_ops > 0}
    looks: dict[Location, float] = defaultdict(float)
    for path in paths:
        if path.phase not in OWN_PHASES or not path.lines or path.lines[-1] not in native:
            continue
        frames = [(line.file, function) for line, function in zip(path.lines, path.functions, strict=True)]
        since = max((place for place, frame in enumerate(frames) if frame in loops), default=-1)
        is_of_loss = not makers.isdisjoint(frames[since + 1 : -1])
        looks[path.lines[-1]] += path.looks if is_of_loss else -path.looks
    return frozenset(place for place, more in looks.items() if more > 0)


def _pool_own(entries: Sequence[LedgerEntry], phases: Mapping[str, PhaseShare]) -> list[LedgerEntry]:
    """Entries of the own phases share out the time of all of them, by looks.

    Where no event tells that forward begins (micro-batches without a loader), the sampler and the phases may differ
    in which of them it is. With a loader they agree, and each phase is shared out by its own looks, if there are some.
    """
    looks = sum(entry.looks for entry in entries if entry.phase in OWN_PHASES)
    own = [phases[phase] for phase in OWN_PHASES if phase in phases]
    share, ms = sum(phase.share for phase in own), sum(phase.ms for phase in own)
    if not looks or all(entry.nature == "unknown" for entry in entries) or _is_told_apart(entries, phases):
        return list(entries)
    pooled = [
        replace(entry, share=share * entry.looks / looks, ms=ms * entry.looks / looks)
        if entry.phase in OWN_PHASES
        else entry
        for entry in entries
    ]
    return sorted(pooled, key=lambda entry: -entry.share)


def _is_told_apart(entries: Sequence[LedgerEntry], phases: Mapping[str, PhaseShare]) -> bool:
    if "data" not in phases or phases["data"].ms <= 0:
        return False
    looks = {phase: sum(entry.looks for entry in entries if entry.phase == phase) for phase in OWN_PHASES}
    return all(looks[phase] >= _SOME_LOOKS for phase in OWN_PHASES if phase in phases and phases[phase].share > 0)


def with_delay(shares: Mapping[Part, float], delay_share: float) -> dict[str, float]:
    """The same shares, of which one is the time in which the thread was ready to run but did not.

    A look cannot tell a thread that runs from one that is ready to, so the delay is taken from all parts alike.
    """
    delay = min(1.0, delay_share)
    shared = {part: share * (1 - delay) for part, share in shares.items()}
    return {part: delay if part == "not running" else shared.get(part, 0.0) for part in PARTS}


def _part(entry: LedgerEntry, on_graph: frozenset[Location] | None, passes: frozenset[Location]) -> Part:
    if entry.phase in _PART_OF_PHASE:
        return _PART_OF_PHASE[entry.phase]
    if entry.on_gradients:
        return "optimizer"
    if entry.in_module or entry.location in passes or (on_graph is not None and entry.location in on_graph):
        return "model"
    if on_graph is None and entry.phase == "forward" and entry.nature == "native":
        return "model"  # a loss need not be a module, and nothing is known of what backward belongs to
    if entry.nature in WAITING:
        return "waiting"
    if entry.nature == "unknown":
        # A system that does not tell what a thread does, or an older recording.
        return "model" if entry.phase == "forward" else "not measured"
    return "python" if entry.nature == "python" else "native"


# How long the training thread waits for the interpreter while another thread of its process runs Python: it was seen to
# want the interpreter, it was neither on a processor nor ready for one, and other Python threads ran meanwhile. It
# waited for them for no longer than the least of the three.


def divide_step(
    run: StoredRun, ranks: Sequence[Rank], phases: Mapping[str, PhaseShare], costs: Sequence[OpCost]
) -> tuple[Ledger, InterpreterUse | None]:
    """The ledger with that wait among its waits, and who was waited for; None where nobody was, or nobody counted."""
    ledger = make_ledger(ranks, phases, costs)
    use = _interpreter_use(run, ranks, ledger)
    if use is None or use.wait_share <= 0:
        return ledger, use
    shares = {part: share * (1 - use.wait_share) for part, share in ledger.shares.items()}
    shares["waiting"] = shares.get("waiting", 0.0) + use.wait_share
    return replace(ledger, shares=shares), use


def _interpreter_use(run: StoredRun, ranks: Sequence[Rank], ledger: Ledger) -> InterpreterUse | None:
    """Of the first rank."""
    rank = ranks[0] if ranks else None
    told = [] if rank is None or rank.lines is None else rank.lines.values("python_threads")
    if rank is None or not told:
        return None
    shares, (pid, tid) = thread_shares(run, ranks[:1]), training_thread(rank)
    others = [
        (shares[pid, thread["tid"]][0], thread)
        for thread in told[-1]
        if thread["tid"] != tid and (pid, thread["tid"]) in shares
    ]
    if not others or (pid, tid) not in shares:
        return None
    wanted = sum(entry.share for entry in ledger.entries if entry.nature == "python")
    slept = max(0.0, 1.0 - sum(shares[pid, tid]))
    run_share, thread = max(others, key=lambda other: other[0])
    return InterpreterUse(
        name=str(thread["name"]),
        function=str(thread["function"]),
        location=Location(str(thread["file"]), int(thread["line"])),
        run_share=run_share,
        wait_share=min(wanted, slept, sum(share for share, _ in others)),
    )

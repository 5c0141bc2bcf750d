"""What bounds a run: decided by how the step divides, not by utilisation.

Each cause gets the share of the step that removing it could save at most. On a GPU the host's own division is not
enough: a host that waits in `.item()` while the device computes loses nothing. So input counts as far as the device
starved, and the host's phases as far as the device was found with nothing left to do (drained). Utilisation alone names
no cause: it only bounds what copies and waits can have cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from flatout.records.evidence import Evidence
from flatout.records.ledger import Ledger, Part
from flatout.records.machine import MachineUse
from flatout.records.message import Message, message, verbatim
from flatout.records.report import (
    MOVING,
    Bound,
    Check,
    CheckState,
    Cost,
    Finding,
    GpuUse,
    Grounds,
    PhaseShare,
    Verdict,
    Warmup,
)
from flatout.words.render import plain
from flatout.words.verdict import verdict_sentence

# Below this a cause is not worth fixing; from `_BINDS` on the largest names the bound.
WORTH_FIXING = 0.05
_BINDS = 0.10
# A run is healthy that computes for this share of its steps or more.
EARNED = 0.9
# Two causes this close to each other share the blame.
_EVEN = 0.8
_HOST_PHASES = ("forward", "backward", "optimizer", "other", "gc")
# Of the time of kernels: below it kernels that wait for memory are not worth a word.
_MUCH_MOVING = 0.2
_CADENCE = ("eval", "checkpoint", "logging")
_SCRIPT: tuple[Part, ...] = ("python", "native", "waiting", "not measured")
_NO_LEDGER = Ledger()
_GIB = 1 << 30
# What is asked for. Utilisation only says that some kernel ran, so it stands behind starving and draining.
_MOST_STARVED, _MOST_DRAINED = 0.05, 0.2
_LEAST_UTIL, _MOST_SPREAD = 85.0, 10.0
_MOST_WAIT_MS, _MOST_CADENCE, _MOST_SYNC = 10.0, 0.10, 0.05
_MOST_DEVICE_MEMORY, _MOST_HOST_MEMORY, _MOST_CPU = 0.95, 0.85, 0.9
_MOST_OWN = 0.01
_NOT_KNOWN = verbatim("–")


@dataclass(frozen=True, slots=True)
class Removable:
    """Shares of the step (0..1) that each cause costs at most; the rest is computing."""

    input: float
    transfer: float
    sync: float
    host: float
    cadence: float

    def ranked(self) -> list[tuple[Bound, float]]:
        causes: list[tuple[Bound, float]] = [
            ("input", self.input),
            ("transfer", self.transfer),
            ("sync", self.sync),
            ("host", self.host),
            ("cadence", self.cadence),
        ]
        return sorted(causes, key=lambda cause: -cause[1])

    @property
    def compute(self) -> float:
        return max(0.0, 1.0 - sum(share for _, share in self.ranked()))


def removable(
    phases: Mapping[str, PhaseShare], gpu: GpuUse | None, on_gpu: bool, ledger: Ledger = _NO_LEDGER
) -> Removable:
    """What each cause costs, from the phases of the step, its lines, and the device's timeline."""
    share = {name: phase.share for name, phase in phases.items()}
    cadence = sum(share[name] for name in _CADENCE)
    if not on_gpu:
        # The CPU itself computes: what is neither the model nor the optimizer is the host's.
        host = _script_share(ledger) if ledger.entries else share["other"]
        return Removable(share["data"], share["h2d"], share["sync"], host + share["gc"], cadence)
    starved = gpu.starved_share if gpu else None
    drained = gpu.drained_share if gpu else None
    waiting = share["data"] if starved is None else starved
    if drained is None:
        return Removable(waiting, share["h2d"], 0.0, 0.0, cadence)
    # After every wait the device has nothing queued until the host is ahead again. That idling is the wait's doing for
    # as long as the wait was; only what remains is a host too slow by itself.
    exposed = drained * sum(share[name] for name in _HOST_PHASES) - waiting
    # A wait also drains the device between the boundaries at which it was looked at: how long no kernel ran shows that.
    busy = gpu.busy_share if gpu else None
    idle = 0.0 if busy is None else max(0.0, 1.0 - busy - waiting - cadence)
    if gpu is not None and gpu.kernels is not None:
        exposed = idle  # known to the kernel: nothing has to be told from the boundaries
    transfer = max(drained * share["h2d"], min(share["h2d"], idle))
    sync = min(share["sync"], max(0.0, exposed - transfer, idle - transfer))
    # Where the device is looked at right after a wait it is found with nothing to do, and soon has enough again.
    host = max(0.0, (exposed if busy is None else min(exposed, idle)) - transfer - sync)
    return Removable(waiting, transfer, sync, host, cadence)


def _script_share(ledger: Ledger) -> float:
    """Other work of the script; where too few looks fell on it to be sure that it binds, what it is at least."""
    least = ledger.least_share_of(*_SCRIPT)
    return ledger.share_of(*_SCRIPT) if least >= _BINDS else least


def judge_bound(
    phases: Mapping[str, PhaseShare],
    step_ms: float | None,
    gpu: GpuUse | None,
    on_gpu: bool,
    ledger: Ledger = _NO_LEDGER,
) -> Verdict:
    """The bound in one word, whether anything is worth fixing, and a plain sentence."""
    if step_ms is None:
        return _make_verdict("balanced", False, None)
    return judge_costs(removable(phases, gpu, on_gpu, ledger), step_ms, on_gpu)


def judge_costs(costs: Removable, step_ms: float, on_gpu: bool, step_error: float = 0.0) -> Verdict:
    """A cause binds that takes a tenth of the step, and more than what the step time is uncertain by."""
    binds = max(_BINDS, step_error)
    first, second = (Cost(cause, share) for cause, share in costs.ranked()[:2])
    healthy = costs.compute >= EARNED
    if first.share < binds:
        named = () if healthy else (first,) if first.share >= WORTH_FIXING else (first, second)
        return _make_verdict("compute", healthy, Grounds(on_gpu, step_ms, costs.compute, named))
    if second.share >= binds and second.share >= _EVEN * first.share:
        return _make_verdict("balanced", healthy, Grounds(on_gpu, step_ms, None, (first, second)))
    return _make_verdict(first.cause, healthy, Grounds(on_gpu, step_ms, None, (first,)))


def with_speed(judged: Verdict, gpu: GpuUse | None) -> Verdict:
    """Busy is not fast: what the device reaches while it computes, where a window shows that."""
    if judged.grounds is None or judged.grounds.compute_share is None or gpu is None or gpu.ladder is None:
        return judged
    kernels, moving = gpu.kernels, None
    if kernels is not None and kernels.busy_ms > 0:
        share = kernels.ms_of(*MOVING) / kernels.busy_ms
        moving = share if share >= _MUCH_MOVING else None
    return _make_verdict(judged.bound, judged.healthy, replace(judged.grounds, mfu=gpu.ladder.mfu, moving_share=moving))


def with_findings(judged: Verdict, found: Sequence[Finding]) -> Verdict:
    """A run with something worth fixing is not healthy, whatever its phases look like."""
    return _healthy_unless(bool(_worth_fixing(found)), judged)


def with_needless(judged: Verdict, needless_ms: float, step_ms: float) -> Verdict:
    """A run that computes what nobody needs is not healthy, whether a gain can be promised or not."""
    return _healthy_unless(needless_ms >= (1.0 - EARNED) * step_ms, judged)


def with_machine(judged: Verdict, machine: MachineUse | None) -> Verdict:
    """A run that others, or the limit of its container, kept from running is not healthy, whatever its step shows."""
    return _healthy_unless(machine is not None and machine.sentence is not None, judged)


def with_steps(judged: Verdict, warmup: Warmup | None) -> Verdict:
    """A run with too few steps to know its step time is not shown to be healthy."""
    return _healthy_unless(warmup is not None and warmup.step_error is None, judged)


def _healthy_unless(is_kept_from_it: bool, judged: Verdict) -> Verdict:
    return _make_verdict(judged.bound, False, judged.grounds) if is_kept_from_it and judged.healthy else judged


def _worth_fixing(found: Sequence[Finding]) -> list[tuple[Finding, float]]:
    """With the gain that is predicted for each."""
    gains = [(finding, finding.predicted_gain.mid) for finding in found if finding.predicted_gain is not None]
    return [(finding, gain) for finding, gain in gains if gain >= 1 + WORTH_FIXING]


def _make_verdict(bound: Bound, healthy: bool, grounds: Grounds | None) -> Verdict:
    return Verdict(bound, healthy, verdict_sentence(grounds, healthy), grounds)


def make_checklist(run: Evidence) -> tuple[Check, ...]:
    """Performance, resources and the end of a run, each with its figure, also what could not be measured here.

    Where common advice asks for a symptom (utilisation above some figure), the cause is asked for beside it. A run
    without a step has no performance.
    """
    performance = tuple(_performance(run)) if run.report.run.steps else ()
    return (*performance, *_resources(run), *_end(run))


def _performance(run: Evidence) -> Iterator[Check]:
    gpu, report = run.report.gpu, run.report
    rate = report.throughput.samples_per_s
    figure = _NOT_KNOWN if rate is None else message("checklist.samples_per_s", rate=rate)
    group = "performance"
    yield _check(group, "checklist.rate_known", rate is not None, figure)
    worth = _worth_fixing(report.findings)
    gains = ", ".join(f"{finding.code} ×{gain:.2f}" for finding, gain in worth[:3])
    figure = verbatim(gains) if worth else message("checklist.nothing_found")
    yield _check(group, "checklist.nothing_gains", not worth, figure)
    starved = gpu.starved_share if gpu else None
    yield _below(group, "checklist.starves", starved, _MOST_STARVED)
    yield _below(group, "checklist.queued", gpu.drained_share if gpu else None, _MOST_DRAINED)
    util, spread = (gpu.util_mean, gpu.util_spread) if gpu else (None, None)
    is_used = None if util is None else util >= _LEAST_UTIL
    yield _check(group, "checklist.utilisation", is_used, _figure(util, "{:.0f}%"))
    yield _check(group, "checklist.steady", _at_most(spread, _MOST_SPREAD), _figure(spread, "± {:.0f}"))
    wait = run.phase("data")
    is_short = wait.ms < _MOST_WAIT_MS or wait.share < _MOST_STARVED
    yield _check(group, "checklist.wait", is_short, message("checklist.ms_a_step", ms=wait.ms))
    cadence = sum(run.phase(name).share for name in _CADENCE)
    yield _below(group, "checklist.cadence", cadence, _MOST_CADENCE)
    sync = run.phase("sync").share if run.on_gpu else None
    yield _below(group, "checklist.sync", sync, _MOST_SYNC)


def _resources(run: Evidence) -> Iterator[Check]:
    group, environment = "resources", run.report.environment
    used, whole = _peak(run, "gpu_memory_bytes"), _peak(run, "gpu_memory_total_bytes")
    yield _below(group, "checklist.gpu_memory", used / whole if used and whole else None, _MOST_DEVICE_MEMORY)
    host = run.report.host
    limits = [environment.get("memory_limit_bytes"), environment.get("memory_bytes")]
    known = [float(limit) for limit in limits if isinstance(limit, int | float) and limit > 0]
    memory = host.memory_peak if host else None
    share = memory / min(known) if memory is not None and known else None
    yield _below(group, "checklist.host_memory", share, _MOST_HOST_MEMORY)
    cores = host.cpu_cores if host else None
    yield _below(group, "checklist.processors", None if cores is None else cores / run.cpus, _MOST_CPU)
    swap = _growth(run, "swap_used_bytes")
    figure = _NOT_KNOWN if swap is None else message("checklist.gib_more", gib=swap / _GIB)
    yield _check(group, "checklist.swap", _at_most(swap, _GIB / 16), figure)
    killed = _growth(run, "oom_kills")
    figure = _NOT_KNOWN if killed is None else message("checklist.killed", count=killed)
    yield _check(group, "checklist.oom", _at_most(killed, 0.5), figure)


def _end(run: Evidence) -> Iterator[Check]:
    group, code = "the run", run.report.run.exit_code
    yield _check(
        group, "checklist.ended_well", None if code is None else code == 0, message("run.exit_code", code=code)
    )
    yield _below(group, "checklist.own_cost", run.report.overhead.share, _MOST_OWN)
    # Said, not left out: whoever ticks a list wants to know what nobody has looked at.
    yield _check(group, "checklist.loss", None, message("checklist.loss_unread"))


def _check(group: str, asked: str, met: bool | None, figure: Message) -> Check:
    """`met` is None where it was not measured."""
    state: CheckState = "not measured" if met is None else "met" if met else "missed"
    return Check(group, message(asked), state, figure)


def _below(group: str, asked: str, share: float | None, most: float) -> Check:
    percent = None if share is None else 100 * share
    return _check(group, asked, _at_most(share, most), _figure(percent, "{:.1f}%"))


def _at_most(value: float | None, most: float) -> bool | None:
    return None if value is None else value <= most


def _figure(value: float | None, form: str) -> Message:
    """A figure that every language writes alike."""
    return _NOT_KNOWN if value is None else verbatim(plain(form.format(value)))


def _peak(run: Evidence, name: str) -> float | None:
    series = run.series.get(name)
    return max(series.values) if series else None


def _growth(run: Evidence, name: str) -> float | None:
    """By how much something grew over the run."""
    series = run.series.get(name)
    return max(0.0, series.values[-1] - series.values[0]) if series else None

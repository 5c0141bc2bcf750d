"""What one watched run comes to: the record behind the terminal verdict and `--json` (schema 1).

`None` always means "not measured"; a zero is a measured zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from flatout.records.machine import MachineUse
from flatout.records.message import NOTHING, Message
from flatout.records.roofline import Roofline

# The ledger of a loader's workers: what their time goes to while training is steady.

# Making samples, putting batches together, handing them over, waiting for an order, waiting for room to hand over. In
# "not running" the worker could have worked, but no processor was free.
WorkerPart = Literal["samples", "collate", "handover", "order", "room", "not running", "not measured"]
WORKER_PARTS: tuple[WorkerPart, ...] = get_args(WorkerPart)
# What the sampler tells apart, by the numbers in a recording.
STAGES: tuple[WorkerPart, ...] = WORKER_PARTS[:5]
# Samples and batches are made, or would be if a processor were free.
WORKING: tuple[WorkerPart, ...] = ("samples", "collate", "not running")


@dataclass(frozen=True, slots=True)
class WorkerUse:
    """One worker process: for how long it was measured, and shares (0..1) of that which add up to 1."""

    worker: int
    pid: int | None
    wall_s: float
    parts: dict[str, float]


@dataclass(frozen=True, slots=True)
class WorkerLedger:
    """All workers of the training loader together, and each by itself."""

    loader: int
    wall_s: float
    parts: dict[str, float]
    # Of the time in which they make samples and collate, with that in which no processor was free: Python, native code,
    # waiting for files and so on ("not running" is one of them). Shares that add up to 1; empty where nothing tells.
    natures: dict[str, float] = field(default_factory=dict)
    # Of the same time, the part in which the thread wanted a processor, by the kernel's count; None where it has none.
    computing: float | None = None
    workers: tuple[WorkerUse, ...] = ()

    @property
    def working(self) -> float:
        return sum(self.parts.get(part, 0.0) for part in WORKING)


# The run.

SCHEMA = 1

# What a training step is divided into. Their order is the order of every table and bar.
PHASES = (
    "data",
    "h2d",
    "forward",
    "backward",
    "optimizer",
    "sync",
    "eval",
    "checkpoint",
    "logging",
    "gc",
    "other",
)

# What the steps before the steady part were busy with.
WarmupCause = Literal[
    "compile",
    "cudnn search",
    "workers",
    "first batch",
    "first step",
    "first epoch",
    "prefetched",
    "device queue",
    "unexplained",
]
Bound = Literal["input", "transfer", "sync", "host", "compute", "cadence", "memory", "balanced"]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Which run this is. `device` is the GPU's name, or "cpu"."""

    id: str
    argv: tuple[str, ...]
    exit_code: int | None
    steps: int
    wall_s: float
    ranks: int
    device: str
    torch: str | None
    python: str | None


@dataclass(frozen=True, slots=True)
class Throughput:
    """Rates over the steady part of the run; warm-up steps are left out.

    Samples are summed over ranks. A step that all ranks take together is one step, so steps/s is the mean over ranks.
    """

    steps_per_s: float | None
    samples_per_s: float | None


@dataclass(frozen=True, slots=True)
class PhaseShare:
    """`share` of the step's wall time (0..1) and mean milliseconds a step."""

    share: float
    ms: float


KernelKind = Literal[
    "gemm",
    "convolution",
    "attention",
    "recurrent",
    "normalisation",
    "pointwise",
    "reduction",
    "indexing",
    "copy",
    "layout",
    "optimizer",
    "communication",
    "other",
]
# Kinds that multiply: what tensor cores are for.
MULTIPLYING: tuple[KernelKind, ...] = ("gemm", "convolution", "attention", "recurrent")
# Kinds that wait for memory, and become fewer kernels where a compiler fuses them.
MOVING: tuple[KernelKind, ...] = ("normalisation", "pointwise", "reduction", "copy")


@dataclass(frozen=True, slots=True)
class KernelShare:
    """All kernels of one kind: how many a step has, and their milliseconds; of which on tensor cores, in float64."""

    kind: KernelKind
    count: float
    ms: float
    tensor_core_ms: float = 0.0
    float64_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class KernelLine:
    """What one line of the script launches in a step, in forward or for it in backward."""

    location: Location
    function: str
    phase: str
    count: float
    ms: float


@dataclass(frozen=True, slots=True)
class KernelUse:
    """What ran on the device in a step. `busy_ms`: at least one kernel ran."""

    busy_ms: float
    count: float
    kinds: tuple[KernelShare, ...] = ()
    # The longest first; what no line of the script launches is in none.
    lines: tuple[KernelLine, ...] = ()
    # What the training thread took for each pass of that step, with nothing queued on the device; empty: not known.
    host_ms: dict[str, float] = field(default_factory=dict)

    def ms_of(self, *kinds: KernelKind) -> float:
        return sum(share.ms for share in self.kinds if share.kind in kinds)


@dataclass(frozen=True, slots=True)
class WorkShare:
    """What a step asks of the device, by kind and precision: operations, arithmetic (FLOP), bytes read and written.

    `fused_bytes`: what would be left of these, were neighbouring operations fused; None: not known.
    """

    kind: KernelKind
    precision: str
    count: float
    flops: float
    bytes: float
    fused_bytes: float | None = None


# As it is, without waits, with the best kernels at this precision, in half precision, and the arithmetic alone.
RungName = Literal["step", "busy", "kernels", "precision", "limit"]


@dataclass(frozen=True, slots=True)
class Rung:
    """Milliseconds a step would take on this rung of the ladder."""

    name: RungName
    ms: float


@dataclass(frozen=True, slots=True)
class Ladder:
    """How far a step is from what its device can do.

    `mfu` (model FLOPs utilisation, 0..1) is of the peak of the data sheet where it is known, else of the measured one,
    in the precision that each product has; `precision` is that of most of them.
    """

    flops: float
    tflops_per_s: float
    mfu: float
    peak_source: Literal["measured", "data sheet"]
    precision: str
    gb_per_s: float
    roofline: Roofline
    rungs: tuple[Rung, ...]

    def ms_of(self, name: RungName) -> float | None:
        return next((rung.ms for rung in self.rungs if rung.name == name), None)


@dataclass(frozen=True, slots=True)
class GpuUse:
    """How busy the GPU was. Shares are 0..1, utilisation in percent, memory in bytes."""

    starved_share: float | None = None
    util_mean: float | None = None
    util_spread: float | None = None
    power_share: float | None = None
    sm_active: float | None = None
    tensor_active: float | None = None
    memory_peak: int | None = None
    # Share of sampled phase boundaries at which the device had already run dry (it waits for the host).
    drained_share: float | None = None
    # Device-timeline milliseconds a step: forward, backward, optimizer, other, step.
    device_ms: dict[str, float] = field(default_factory=dict)
    # Share of the time in which some kernel of this process ran: recorded; else utilisation, where no other process
    # used the GPU.
    busy_share: float | None = None
    # One step's kernels, where a window recorded them.
    kernels: KernelUse | None = None
    # What one step asked for, where a window recorded that; what multiplies most first.
    work: tuple[WorkShare, ...] = ()
    ladder: Ladder | None = None


@dataclass(frozen=True, slots=True)
class RemedyState:
    """A remedy of the run's profile: "applied", or "refused", "failed" or "reverted" and why, after `step` steps."""

    id: str
    safety: str
    value: object
    state: str
    why: Message = NOTHING
    step: int = 0
    # Where it took effect, as read from the living objects.
    live: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HostUse:
    """What all watched processes took together: mean busy cores while training, and most bytes at any time."""

    cpu_cores: float | None = None
    # Pages that several processes share count once, where the kernel tells them apart.
    memory_peak: int | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """The share (0..1) of a step that removing a cause could save at most."""

    cause: Bound
    share: float


@dataclass(frozen=True, slots=True)
class Grounds:
    """What a verdict's sentence is made of, in whatever language."""

    on_gpu: bool
    step_ms: float
    # None where the sentence names nothing but costs.
    compute_share: float | None
    # Those that the sentence names, dearest first.
    costs: tuple[Cost, ...]
    # Of the device's peak; and of its time, what goes to kernels that wait for memory. None where not measured.
    mfu: float | None = None
    moving_share: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What bounds the run, in one word and one sentence."""

    bound: Bound
    healthy: bool
    sentence: Message
    # None where no step was seen.
    grounds: Grounds | None = None


@dataclass(frozen=True, slots=True)
class Location:
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Gain:
    """Predicted ratio of samples/s after the fix, from this run's own figures."""

    low: float
    mid: float
    high: float
    method: Message


@dataclass(frozen=True, slots=True)
class RelatedLine:
    """Another place that a finding has to do with: where the value is written that arrives at its line."""

    location: Location
    words: Message


@dataclass(frozen=True, slots=True)
class Finding:
    code: str
    family: str
    title: str
    severity: str
    location: Location | None
    evidence: dict[str, float | int | str]
    cause: Message
    remedy: str | None
    change: Message | None
    predicted_gain: Gain | None
    related: tuple[RelatedLine, ...] = ()
    # The command that makes the change in the source, where flatout can.
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class Overhead:
    """What flatout itself cost the training process."""

    us_per_step: float | None
    share: float | None


@dataclass(frozen=True, slots=True)
class LineCost:
    """A line of the user's code and the share (0..1) of the step's wall time spent under it in one phase."""

    location: Location
    function: str
    phase: str
    share: float
    ms: float
    # Of lines in a loader's worker: shares of this time by nature (`records.ledger.NATURES`); empty where not known.
    natures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SyncSite:
    """A place where the host waits for the device. `op` is item, cpu, bool, synchronize, hidden …"""

    location: Location
    function: str
    op: str
    per_step: float
    ms: float | None


@dataclass(frozen=True, slots=True)
class CopySite:
    """A place where the script copies from host to device."""

    location: Location
    function: str
    per_step: float
    ms: float
    bytes_per_step: float
    pinned_share: float
    non_blocking_share: float


@dataclass(frozen=True, slots=True)
class WorkerCost:
    """What the loader's workers (or the main process, with 0 workers) spend on a sample."""

    loader: int
    workers: int
    samples: int
    fetch_ms_per_sample: float
    collate_ms_per_sample: float
    slowest_batch_ms: float
    busy_share: float | None
    startup_s: float | None
    queue_depth: float | None


@dataclass(frozen=True, slots=True)
class PauseSite:
    """A place that writes a checkpoint or logs: how often in the whole run, and what it took in all and at most."""

    location: Location
    function: str
    op: str
    count: int
    total_s: float
    max_s: float


@dataclass(frozen=True, slots=True)
class RankUse:
    """One training process. Compare durations between ranks, never their clocks: hosts disagree about the time."""

    rank: int | None
    host: str | None
    pid: int | None
    steps: int
    step_ms: float | None
    samples_per_s: float | None
    # Mean milliseconds a step in each phase.
    phase_ms: dict[str, float]
    # Whether the process came to a normal end.
    ended: bool


@dataclass(frozen=True, slots=True)
class StageCost:
    """A part of the model: mean milliseconds a step of its own passes, on the device where it has one.

    `if_free` and `if_twice` bound what the whole step would gain if the stage took no time, or half of it: a ratio of
    samples/s, by Amdahl's law. None of `share` and these where there is no step to compare with.
    """

    name: str
    # The class of its module.
    module: str
    parameters: int
    forward_ms: float
    # None where its outputs did not show where its backward is.
    backward_ms: float | None
    # Of the step's wall time (0..1).
    share: float | None
    if_free: float | None
    if_twice: float | None
    calls_per_step: float
    # Steps it was measured in.
    samples: int

    @property
    def ms(self) -> float:
        return self.forward_ms + (self.backward_ms or 0.0)


@dataclass(frozen=True, slots=True)
class Snippet:
    """The text of a line as it was when the run began: by it the line is found again in a file that was changed."""

    location: Location
    text: str


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """Something in the source of which this run cannot tell what it costs."""

    code: str
    title: str
    location: Location


@dataclass(frozen=True, slots=True)
class SourceSide:
    """What the catalogue says of the files that this run executed. `free` findings cost nothing in it."""

    files: int
    free: int
    not_measured: tuple[Unmeasured, ...]
    # What `flatout check` has to be given to show these.
    path: str


@dataclass(frozen=True, slots=True)
class Warmup:
    """What is in no rate and no share, because the run had not settled, or compiled again later; and what is left.

    Of the rank with most of it. `causes` are those of a good part of the time, the largest first.
    """

    steps: int
    seconds: float
    causes: tuple[WarmupCause, ...] = ()
    steady_steps: int = 0
    # Half of the 95% interval of the mean steady step, as a share of it; None where there are too few steps to tell.
    step_error: float | None = None
    # The steady part's fastest and slowest level, in ms a step, where the speed of the run itself changed.
    varied_ms: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class RunReport:
    """Everything a reporter may show. Additive: new fields come with defaults."""

    run: RunFacts
    throughput: Throughput
    phases: dict[str, PhaseShare]
    gpu: GpuUse | None
    verdict: Verdict
    findings: tuple[Finding, ...]
    overhead: Overhead
    lines: tuple[LineCost, ...] = ()
    syncs: tuple[SyncSite, ...] = ()
    copies: tuple[CopySite, ...] = ()
    workers: tuple[WorkerCost, ...] = ()
    # Settings read from the living objects: loaders, cudnn/TF32/precision/compile state, optimizers.
    live: dict[str, object] = field(default_factory=dict)
    environment: dict[str, object] = field(default_factory=dict)
    # One line each on what was not measured, lost, or noteworthy about the recording itself.
    notices: tuple[Message, ...] = ()
    pauses: tuple[PauseSite, ...] = ()
    ranks: tuple[RankUse, ...] = ()
    # Steps at the start that are in no rate and no share, because the run had not settled; the most of any rank.
    warmup_steps: int = 0
    host: HostUse | None = None
    # Lines under which a worker of the training loader was seen at work: `share` is of its time at work, `ms` of a
    # sample, `phase` is "worker". They are part of no step: `lines` has those.
    worker_lines: tuple[LineCost, ...] = ()
    # The stages of the model in its own order, where they were asked for (`flatout run --stages`) and seen.
    stages: tuple[StageCost, ...] | None = None
    # The lines that cost most and all call sites, where their file was still as it was.
    snippets: tuple[Snippet, ...] = ()
    # None where the source was not looked at.
    source: SourceSide | None = None
    # What a profile asked for and what came of it, in the first rank.
    remedies: tuple[RemedyState, ...] = ()
    # None where there were no steps.
    warmup: Warmup | None = None
    # Who had the processors; None where nobody looked.
    machine: MachineUse | None = None
    # What the steady step is spent on: shares (0..1) that add up to 1, by the names of `records.ledger.PARTS`. Empty
    # where lines were not sampled.
    parts: dict[str, float] = field(default_factory=dict)
    # What the time of the training loader's workers goes to; None without workers.
    worker_ledger: WorkerLedger | None = None
    schema: int = SCHEMA

    @property
    def sites(self) -> list[Location]:
        """Where it waits for the device, copies to it, writes and logs."""
        of_device = [site.location for site in self.syncs] + [site.location for site in self.copies]
        return of_device + [site.location for site in self.pauses]


CheckState = Literal["met", "missed", "not measured"]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the checklist: what is asked for, whether it is met, and the figure that says so."""

    group: str
    asked: Message
    state: CheckState
    figure: Message

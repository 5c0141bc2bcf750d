"""What a detector may look at: the report of a run, and what else was learnt from its record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from flatout.records.ledger import CallPath, Ledger
from flatout.records.message import Message
from flatout.records.report import Finding, LineCost, Location, PhaseShare, RunReport, WorkerCost
from flatout.records.sample import Role

# What somebody set for the run, before anything is known of whether it arrived.

Value = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Setting:
    """`name` is what it means (num_workers), `written` how it was written (data.workers_per_gpu)."""

    name: str
    written: str
    value: Value
    # None: the command line.
    location: Location | None = None
    # What it took the place of, in a config that its own builds on.
    over: Setting | None = None


@dataclass(frozen=True, slots=True)
class Configured:
    """What the run was given, and how the script makes its training loader."""

    settings: tuple[Setting, ...] = ()
    # Keywords of the call that made the loader: "literal" or "computed"; those it does not have are absent.
    # None where the call cannot be read, or may hand on more than it shows.
    call: dict[str, str] | None = None

    def setting(self, name: str) -> Setting | None:
        return next((setting for setting in self.settings if setting.name == name), None)


# What the batches consist of: values wider than they need to be, and padding.


@dataclass(frozen=True, slots=True)
class NarrowCopy:
    """A line that copies to the device what a narrower type would hold, by the values that were looked at."""

    location: Location
    # The type that most of the bytes to be saved have, and the one that would hold them.
    dtype: str
    narrow: str
    # Of the bytes copied there, those a narrower type would save.
    saved_share: float


@dataclass(frozen=True, slots=True)
class Padding:
    """Padded sequences in the batches of the training loader. Shares are of what the model computes."""

    # Batches and rows that were looked at.
    batches: int
    rows: int
    # Places in a row of the mean batch.
    length: float
    share: float
    # The same if every batch were padded to its own longest sequence, and if batches were cut from chunks of fifty
    # sorted by length as well.
    share_if_trimmed: float
    share_if_sorted: float
    # What pads: a value, or what an attention mask leaves out.
    kind: Message
    # In how many of the looks the model computed at the padded length.
    computed_share: float


# What the run took of its machine, in the detail that detectors need.


@dataclass(frozen=True, slots=True)
class Evaluations:
    """Evaluations among the training steps; one after the last step is not among them."""

    count: int
    median_s: float
    # Where the script calls its evaluation, or loops over the validation data.
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class OomKill:
    """Processes that the kernel ended for want of memory, and the largest of them as it was last seen."""

    kills: int
    role: Role | None = None
    pid: int | None = None
    rss_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU on which the run holds memory, while training was steady. Shares are 0..1; None: not measured."""

    gpu: int
    name: str | None = None
    memory_total_bytes: float | None = None
    # Everybody's, and that of the run alone.
    memory_used_bytes: float | None = None
    own_memory_bytes: float | None = None
    util_percent: float | None = None
    temperature_c: float | None = None
    dram_active: float | None = None
    # Share of the samples in which each reason held the clock down.
    throttled: dict[str, float] = field(default_factory=dict)
    # Median SM clock while something other than the power limit held it down, and the highest of the whole run.
    slowed_clock_mhz: float | None = None
    best_clock_mhz: float | None = None


# How the loaders worked.


@dataclass(frozen=True, slots=True)
class WorkerProcesses:
    """Means over a loader's worker processes while training: of one process, unless it says otherwise."""

    # Processor seconds a second, of all its threads.
    cpu_share: float
    threads: float | None = None
    # What came from storage, not from the page cache; None where the system does not tell.
    read_bytes_per_s: float | None = None
    major_faults_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """How the waits for a batch of the training loader are spread over the steady steps of all ranks."""

    # Steps that began with making an iterator (an epoch), as a share of all, and their mean wait with that in it.
    first_share: float
    first_ms: float | None
    # The other steps: mean and median wait.
    rest_ms: float
    median_ms: float
    # Of the mean wait, what belongs to steps that waited more than twice what a worker takes for a batch on average,
    # and the share of steps that did.
    late_ms: float = 0.0
    late_share: float = 0.0
    # Share of the other steps that found no batch ready, and the mean wait of those that did find one.
    empty_share: float | None = None
    ready_ms: float | None = None
    # How much longer the passes of the first steps take than those of the others: after a process was forked, all
    # memory that is written to is copied once.
    first_slower_ms: float | None = None


@dataclass(frozen=True, slots=True)
class CacheUse:
    """Something the dataset keeps of its samples, in the processes that fetch for the training loader."""

    # As attributes lead to it, or the function's name; "lru_cache" is functools', "dict" the user's own.
    name: str
    kind: str
    # Where it lived, over the whole run: a worker that was started anew is another.
    processes: int
    # In one process, when it was seen last; and the most it may hold, where that is known.
    entries: float
    capacity: int | None
    # Part of what was asked of it that was there: as it counted itself, else by the keys that fetches put in.
    hit_rate: float
    # What a sample asks of it.
    keys_per_sample: float
    # Was something in it thrown out again?
    evicts: bool


@dataclass(frozen=True, slots=True)
class CarriedMemory:
    """What a worker's usual batch takes along: torch copies whole storages, however little of them is shown."""

    shown_bytes: int
    carried_bytes: int
    # Where the dataset hands its samples out; None where that is no line of the user's.
    location: Location | None = None

    @property
    def excess_bytes(self) -> int:
        return self.carried_bytes - self.shown_bytes


@dataclass(frozen=True, slots=True)
class LoaderUse:
    """One DataLoader as it lived, and what it cost. Several epochs, or several equal loaders, are one."""

    number: int
    # As DataLoader has them; `made_at` is where the script made it.
    settings: dict[str, Any]
    made_at: Location | None
    # The one whose batches go through backward most.
    trains: bool
    cost: WorkerCost | None
    # How often an iterator was made, and the seconds that making one took (worker start-up is in it).
    epochs: int = 0
    iterator_s: float | None = None
    # How many DataLoader objects with these settings the script made.
    made: int = 1
    # What its worker processes took of the machine, where they lived long enough to be sampled.
    processes: WorkerProcesses | None = None
    # Tensors of a batch that its workers hand over in memory which is new each time; None where they do not.
    batch_bytes: int | None = None
    # The memory behind these; None where too few batches were looked at.
    carried: CarriedMemory | None = None

    @property
    def workers(self) -> int:
        return int(self.settings.get("num_workers") or 0)

    @property
    def batch_size(self) -> int | None:
        size = self.settings.get("batch_size") or self.settings.get("batch_sampler_size")
        return int(size) if size else None

    @property
    def sample_ms(self) -> float | None:
        """Processor milliseconds of one process for one sample: fetch and collate."""
        return None if self.cost is None else self.cost.fetch_ms_per_sample + self.cost.collate_ms_per_sample


@dataclass(frozen=True, slots=True)
class OpCost:
    """What a line of the user's code takes of an ordinary step, its operations in backward included.

    Host time: on a GPU that of the launches. A line whose time lies partly within a module's call is two of these.
    """

    location: Location
    function: str
    # Whether a module was being called: the model, or a loss that is one.
    in_module: bool
    # How often a step runs the line, or calls the module.
    calls: float
    forward_ms: float
    # None: backward could not be measured. All lines' come to the backward phase.
    backward_ms: float | None
    # Autograd nodes that the line makes.
    backward_ops: float


@dataclass(frozen=True, slots=True)
class NeedlessCall:
    """A call of a module that an ordinary step could do without, at least in part; times are of a step."""

    # "repeat": the same module with the same input and weights as before in this step.
    # "unheld": gradients are computed for weights that no optimizer has.
    # "dropped": backward goes through it, but its gradients are cleared before an optimizer uses them.
    kind: Literal["repeat", "unheld", "dropped"]
    module: str  # of what is dropped, empty where it is no call of a module but an operation
    location: Location
    function: str
    # Of a repeat: the call whose result would do.
    first_location: Location | None
    calls: float
    forward_ms: float
    backward_ms: float
    # Another result than the first time, by random numbers (dropout).
    is_random: bool = False
    # It changes buffers of the module (running statistics).
    moves_state: bool = False
    # Gradients go on through it to what came before.
    flows_through: bool = False
    # What the device does for it, forward and backward; None: not recorded.
    device_ms: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class BackwardAgain:
    """Backward passes of a step, called in one line, that go over a graph which others went over before."""

    location: Location
    function: str
    passes: float
    # Autograd nodes that they run again, and the milliseconds that these take of an ordinary step.
    nodes: float
    backward_ms: float


@dataclass(frozen=True, slots=True)
class GrowingCalls:
    """Calls of one module in one line whose input grows from call to call: a sequence from its start each time.

    All figures are of an ordinary step, times those of the training thread.
    """

    module: str
    location: Location
    function: str
    # From the shortest input to the longest, perhaps several times.
    sequences: float
    calls: float
    # In the dimension that grows, counted from 0.
    dimension: int
    first_length: float
    last_length: float
    # Elements of all calls together, and of the longest of each sequence.
    computed: float
    needed: float
    # All elements were there at the first call: no call made what a later one was given.
    is_known: bool
    forward_ms: float
    backward_ms: float
    # Of one call in forward, however long its input is.
    fixed_ms: float


@dataclass(frozen=True, slots=True)
class PickedParts:
    """Tensors of which a line picks parts one by one, with a gradient of the whole tensor for each; of a step."""

    location: Location
    function: str
    tensors: float
    # Of one tensor: picks, its elements, and those of all picks.
    count: float
    elements: float
    picked: float
    # Of all of them, on the training thread.
    backward_ms: float


@dataclass(frozen=True, slots=True)
class SummedPairs:
    """Values of all pairs of rows and columns, which lines of a step form one by one and then sum."""

    # They form and sum them; the one that forms them is the first.
    locations: tuple[Location, ...]
    is_difference: bool  # else a product
    rows: int
    columns: int
    values: int
    uses: float  # in a step
    # Both ways as timed on this machine, backward included; None: not timed.
    formed_ms: float | None = None
    multiplied_ms: float | None = None


@dataclass(frozen=True, slots=True)
class OtherForm:
    """An operation of a step that may be quicker in another form, as timed on this machine.

    What `sizes` and `options` are depends on the kind. product: batch, rows, inner, columns; which factor is one
    matrix. factorization: batch, side. transform: the shape; its dimensions. factored_again: batch, side,
    columns of products with the inverse. enlarged: images, channels, height and width, those after, channels after.
    chain: batch, rows of each matrix and columns of the last; its order and the cheapest.
    """

    kind: Literal["product", "factorization", "transform", "factored_again", "enlarged", "chain"]
    # Those that compute it, the one of the operation first.
    locations: tuple[Location, ...]
    sizes: tuple[int, ...]
    names: tuple[str, ...]
    options: tuple[int, ...]
    uses: float  # in a step
    # Of a transform: its signal is padded, so that another length gives the same.
    is_padded: bool = False
    lengths: tuple[int, int] | None = None  # of it, and the next one without large factors
    # Milliseconds of forward and of backward, of one use; None: not timed.
    now_ms: tuple[float, float] | None = None
    other_ms: tuple[float, float] | None = None

    @property
    def saved_ms(self) -> float:
        return 0.0 if self.now_ms is None or self.other_ms is None else sum(self.now_ms) - sum(self.other_ms)


@dataclass(frozen=True, slots=True)
class PickedTable:
    """A large weight of which a step picks some rows, with a dense gradient, in which all others are zero."""

    # Where it is made, if that was seen, else where rows are picked.
    location: Location
    elements: float
    # Elements that a step picks at most, in so many operations.
    picked: float
    uses: float
    bytes: float
    # Of all weights that optimizers update.
    all_bytes: float
    # Of an ordinary step: what the backward of picking takes on the training thread.
    backward_ms: float
    # The optimizer's class, and whether it is fused. Does it change rows whose gradient is zero?
    optimizer: str
    fused: bool = False
    decays: bool = False

    @property
    def picked_share(self) -> float:
        return min(1.0, self.picked / self.elements) if self.elements else 1.0


@dataclass(frozen=True, slots=True)
class EmptyFactor:
    """A factor of matrix products that is nearly all zeros and needs no gradient. Seen in a step, one line."""

    # Rows, inner and columns of the product.
    size: tuple[int, int, int]
    # Which part of it is not zero.
    density: float
    # Products in a step.
    uses: float
    # Milliseconds that one takes dense and sparse, backward included, as timed when the run had ended; None: not timed.
    dense_ms: float | None = None
    sparse_ms: float | None = None


@dataclass(frozen=True, slots=True)
class SubnormalInput:
    """Something that an operation multiplies, with numbers too small for a processor's quick path. One line's."""

    shape: tuple[int, ...]
    # Which part of its values are such numbers.
    share: float
    # Operations in a step.
    uses: float
    # Milliseconds that one takes with these numbers and with zeros in their place, forward and backward, as timed when
    # the run had ended; None: not timed.
    slow_ms: float | None = None
    quick_ms: float | None = None


@dataclass(frozen=True, slots=True)
class HeavyLine:
    """A line of a step that has some of its heaviest operations. Operations are multiplications."""

    location: Location
    function: str
    operations: float
    # The part of them that makes results with a gradient of zero: the loss does not read these.
    unread_share: float
    factors: tuple[EmptyFactor, ...] = ()
    subnormals: tuple[SubnormalInput, ...] = ()


@dataclass(frozen=True, slots=True)
class InterpreterUse:
    """Another Python thread of the training process, and how long the training thread waits for the interpreter."""

    name: str
    function: str
    location: Location
    # Processor seconds a second of this thread.
    run_share: float
    # Of the step, for all such threads together, at most.
    wait_share: float


@dataclass(frozen=True, slots=True)
class GrowingWork:
    """Work of the script that takes longer from step to step."""

    # The line that takes longer most.
    location: Location
    function: str
    # What it counts from, and how many steps that goes on for.
    since: Literal["run", "epoch"]
    steps: float
    # All of the script's own phases, in the first of these steps and in the last.
    first_ms: float
    last_ms: float
    # Of a mean steady step, beyond what the first takes, by phase.
    grown_ms: dict[str, float]


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """Torch has fewer threads than there are processors: the heaviest operations of a step, timed with either number.

    As products of the same number of multiplications, when the run had ended.
    """

    threads: int
    processors: int
    few_ms: float
    many_ms: float
    # Where the script says how many, if that was found.
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class Holder:
    """A list of the script's that grows from step to step."""

    name: str
    function: str
    # Where something is appended to it, if that was found.
    location: Location | None
    elements_per_step: float
    # What its last element is, whether with a graph, and its own bytes (without those that the graph keeps).
    element: Literal["tensor", "array"]
    has_graph: bool
    bytes: float


@dataclass(frozen=True, slots=True)
class StepMemory:
    """Bytes that the training process takes at the end of steady steps, without mapped files."""

    steps: tuple[float, ...]
    bytes: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """Something sampled over the run, oldest first; seconds since the run began."""

    t_s: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class HandAttention:
    """Attention of one step that is written as two products with a softmax between.

    `rows` and `columns` are those of the largest scores. `bytes` are what operations between the products move, and
    the products for the scores, forward and backward: none of it goes through memory in an attention kernel.
    """

    calls: float
    rows: int
    columns: int
    bytes: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """A run as detectors see it. Everything is of the steady part unless it says otherwise."""

    report: RunReport
    loaders: tuple[LoaderUse, ...] = ()
    # Processors the run may use: affinity and container quota.
    cpus: float = 1.0
    # Samples a step of one rank, where known.
    samples_per_step: float | None = None
    # Named series of telemetry: "rss_bytes", "gpu_memory_bytes", "disk_busy_share" …; absent where not sampled.
    series: dict[str, Series] = field(default_factory=dict)
    waiting: Waiting | None = None
    # Mean processor seconds a second of a training process itself, all its threads; None where it was not sampled.
    main_cpu_share: float | None = None
    # Every line that was seen, the dearest first (the report has only the first few of them).
    all_lines: tuple[LineCost, ...] = ()
    # The text of those lines and of the sites of pauses, where the file is still as it was: by file and line.
    source: dict[tuple[str, int], str] = field(default_factory=dict)
    evaluations: Evaluations | None = None
    oom_kill: OomKill | None = None
    gpus: tuple[GpuState, ...] = ()
    # As report.ranks: milliseconds a step on each rank's device, by phase.
    rank_device_ms: tuple[dict[str, float], ...] = ()
    # As report.ranks: phases in milliseconds a step for each part of the steady steps, in order of time.
    rank_parts_ms: tuple[tuple[dict[str, float], ...], ...] = ()
    # Where one process spreads its model over several GPUs by torch.nn.DataParallel.
    data_parallel_at: Location | None = None
    # The whole text of the files that dear lines are in, where they are still as they were.
    files: dict[str, str] = field(default_factory=dict)
    # What torch's state was noted to be while the run went on, oldest first; only changes are noted.
    torch_states: tuple[dict[str, Any], ...] = ()
    # Lines of the user's code under which a worker of the training loader was seen fetching, the dearest first: `share`
    # is of its time at work, `ms` of one sample. Their `phase` is "worker".
    worker_lines: tuple[LineCost, ...] = ()
    caches: tuple[CacheUse, ...] = ()
    # Bytes of a typical file that the training loader's dataset names; None where it names none.
    file_bytes: float | None = None
    # How many optimizers stepped, and the median of the steady steps, which a few very long ones do not move.
    optimizers_met: int = 0
    median_step_ms: float | None = None
    # Of the steady steps, those in which Python's collector was seen at work; None without steps.
    collecting_share: float | None = None
    # What the command line and config files set, and how the script makes its training loader.
    configured: Configured = field(default_factory=Configured)
    # Lines that copy wider types than their values need, and the padding in the training loader's batches.
    narrow_copies: tuple[NarrowCopy, ...] = ()
    # Lines that copy to the device on a stream of their own.
    own_stream_copies: frozenset[Location] = frozenset()
    padding: Padding | None = None
    # How often the training thread was looked at to learn its lines: one that was never met takes little.
    line_looks: float = 0.0
    # Milliseconds of a mean steady step that the compiler took; None where it was not recorded step by step.
    compile_ms: float | None = None
    # Findings that the steady steps are too few for: not shown, but worth a trial.
    withheld: tuple[Finding, ...] = ()
    # Every millisecond of the steady step by line and nature; without entries where lines were not sampled.
    ledger: Ledger = field(default_factory=Ledger)
    # From a window over a few steps; empty where there was none.
    op_costs: tuple[OpCost, ...] = ()
    # The training thread's own work in steady steps, in order, as multiples of its mean: without waits for a batch or
    # the device and without pauses.
    step_spread: tuple[float, ...] = ()
    # From the same windows: calls of modules that a step could do without, the dearest first.
    needless_calls: tuple[NeedlessCall, ...] = ()
    # Likewise: backward passes over a graph that others went over before, the dearest first.
    backward_again: tuple[BackwardAgain, ...] = ()
    # Of the first rank; None where it was not recorded.
    step_memory: StepMemory | None = None
    # Lists that grew between the last windows: those with a graph first, then the largest elements.
    holders: tuple[Holder, ...] = ()
    # Where the script makes its model, or everything, float64, by the text of its files; None where it does not.
    float64_at: Location | None = None
    # From the windows: large weights of which a step picks some rows, the largest first.
    picked_tables: tuple[PickedTable, ...] = ()
    picked_parts: tuple[PickedParts, ...] = ()
    summed_pairs: tuple[SummedPairs, ...] = ()
    other_forms: tuple[OtherForm, ...] = ()
    # From the windows: lines with the heaviest operations, the heaviest first. Only what the host computes is read.
    heavy_lines: tuple[HeavyLine, ...] = ()
    # Likewise: modules that are called again and again with an input that grows, the dearest first.
    growing_calls: tuple[GrowingCalls, ...] = ()
    # The thread that runs most beside the one that trains; None where there is none, or nobody counted.
    interpreter: InterpreterUse | None = None
    growing_work: GrowingWork | None = None
    # The calls that led to where time went, the dearest first; empty in older recordings.
    call_paths: tuple[CallPath, ...] = ()
    thread_times: ThreadTimes | None = None
    # Of the step, how long the busiest of the script's other Python threads and processes is on a processor, but for
    # loaders' workers. What waits for them takes as long.
    beside_share: float = 0.0
    # Of the recorded operations of a step; None where there is none of it, or nothing was recorded.
    hand_attention: HandAttention | None = None

    @property
    def on_gpu(self) -> bool:
        return self.report.run.device != "cpu"

    @property
    def step_ms(self) -> float:
        """Wall milliseconds of a mean step; 0 without any."""
        return sum(phase.ms for phase in self.report.phases.values())

    def phase(self, name: str) -> PhaseShare:
        return self.report.phases.get(name, PhaseShare(0.0, 0.0))

    @property
    def starved_ms(self) -> float:
        """Milliseconds a step that the computing side stands still for want of a batch."""
        gpu = self.report.gpu
        if self.on_gpu and gpu is not None and gpu.starved_share is not None:
            return gpu.starved_share * self.step_ms
        return self.phase("data").ms

    @property
    def device_busy_ms(self) -> float | None:
        """Milliseconds a step that the GPU works at most: its timeline less what it starved."""
        gpu = self.report.gpu
        if not self.on_gpu or gpu is None or "step" not in gpu.device_ms:
            return None
        return max(0.0, gpu.device_ms["step"] - gpu.device_ms.get("starved", 0.0))

    @property
    def training_loader(self) -> LoaderUse | None:
        return next((loader for loader in self.loaders if loader.trains), None)

    @property
    def late_by_others(self) -> float | None:
        """Share of a step by which workers may be late because other processes disturbed the run; None if none did.

        Batches that the training thread makes itself are never late: others delay all of its lines alike.
        """
        machine, use = self.report.machine, self.training_loader
        if machine is None or not machine.disturbed or use is None or not use.workers:
            return None
        return machine.lost_share

    @property
    def needless_ms(self) -> float:
        """Milliseconds a step that the passes compute for nothing, surely."""
        calls_ms = sum(
            call.backward_ms + (call.forward_ms if call.kind == "repeat" else 0.0)
            for call in self.needless_calls
            if not call.flows_through
        )
        return calls_ms + sum(again.backward_ms for again in self.backward_again)

    def text_at(self, location: Location | None) -> str:
        """The source of a line, without its indent; empty where it is not known."""
        return "" if location is None else self.source.get((location.file, location.line), "")

    @property
    def live_torch(self) -> dict[str, Any]:
        """Torch's state in the living process; empty where it is not known."""
        state = self.report.live.get("torch")
        return state if isinstance(state, dict) else {}

    @property
    def live_optimizers(self) -> list[dict[str, Any]]:
        """The settings of the optimizers in the living process."""
        known = self.report.live.get("optimizers")
        return [optimizer for optimizer in known if isinstance(optimizer, dict)] if isinstance(known, list) else []

    @property
    def drained_share(self) -> float | None:
        """Share of looks at which the GPU had nothing queued; None where it was not measured."""
        return None if self.report.gpu is None else self.report.gpu.drained_share

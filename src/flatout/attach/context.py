"""What the session gives to every watcher, and when it calls one besides its patches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .device_clock import DeviceClock
from .graph import GraphInspector
from .patching import Patches
from .phases import Phases, StepWriter
from .recorder import Output
from .sites import Sites
from .tracer import Tracer

_LINES_HZ = 12.0


class BackwardObserver(Protocol):
    """Wants to know where a backward pass begins and ends: the device clock, or the stages, which pass it on."""

    def backward_begins(self) -> None: ...
    def backward_ends(self) -> None: ...


@dataclass(slots=True)
class Context:
    """One process. The lists hold the methods of these names of all watchers that have one."""

    torch: Any
    tracer: Tracer
    phases: Phases
    writer: StepWriter
    sites: Sites
    graph: GraphInspector
    output: Callable[[], Output]
    trouble: Callable[[Exception], None]  # a hook of ours failed
    patches: Patches = field(default_factory=Patches)
    settings: Mapping[str, Any] = field(default_factory=dict)
    device: DeviceClock | None = None
    backward_observer: BackwardObserver | None = None
    open_lines: Callable[[], Output] = Output  # a recording of its own for the line sampler
    enter_worker: Callable[[Any], None] = lambda info: None  # this process is a loader's worker
    # [True] while a call that is timed as a sync is under way: it is not reported as a hidden one too.
    in_timed_sync: list[bool] = field(default_factory=lambda: [False])
    # The last events are read: no look may begin. Its modules would be imported at exit. What they compile from text
    # (dataclasses do) makes CPython forget that Ctrl-C ended the script: its exit code would be another.
    is_ending: bool = False
    # A CUDA graph was captured in this process.
    has_captured: bool = False
    # Does a remedy still observe, compile or time? A window would show the run without it.
    is_settling: Callable[[], bool] = lambda: False
    # Has a window of ours torch's profiler record kernels now?
    is_recording_kernels: Callable[[], bool] = lambda: False
    # Every optimizer that was made, as weak references.
    optimizers: list[Any] = field(default_factory=list)
    # Embeddings, as weak references, and the file and line that made each.
    tables: list[tuple[Any, tuple[str, int]]] = field(default_factory=list)

    # Called when the training thread is known.
    at_begin: list[Callable[[], None]] = field(default_factory=list)
    # Called with the events, the index and the time when steps are read; True: the next step is to be read by itself.
    at_step_end: list[Callable[[Sequence[int], int, float], bool]] = field(default_factory=list)
    # Seconds that the watcher itself took since it was last asked.
    take_own_s: list[Callable[[], float]] = field(default_factory=list)
    # Adds to the settings of torch that are written down now and then; called with the index of the last step.
    add_state: list[Callable[[dict[str, object], int], None]] = field(default_factory=list)
    # In a forked child: threads are gone, and what was seen belongs to the parent.
    at_fork: list[Callable[[], None]] = field(default_factory=list)
    # Undo what is not a patch.
    at_uninstall: list[Callable[[], None]] = field(default_factory=list)
    # The process ends: first everything stops, then what is left is written, if there was a step.
    at_stop: list[Callable[[], None]] = field(default_factory=list)
    at_finish: list[Callable[[], None]] = field(default_factory=list)

    @property
    def has_device(self) -> bool:
        """Whether calls that only matter with a device are watched."""
        return self.torch.version.cuda is not None or bool(self.settings.get("device_patches"))

    @property
    def lines_hz(self) -> float:
        """How often the line sampler looks; 0: never."""
        return float(self.settings.get("lines_hz", _LINES_HZ))


_CALLBACKS = (
    "at_begin", "at_step_end", "take_own_s", "add_state", "at_fork", "at_uninstall", "at_stop", "at_finish",
)  # fmt: skip


class Watcher:
    """Sees one kind of event. `install` puts patches in place; a method named like a list above is called from there.

    The fields are copied from the context because patches read them: one look-up instead of two.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._torch = context.torch
        self._compiling = context.torch.compiler.is_dynamo_compiling
        self._tracer = context.tracer
        self._device = context.device
        self._sites = context.sites
        self._output = context.output
        self._trouble = context.trouble
        self._patches = context.patches

    def install(self) -> None:
        """Put the patches in place, if it has any."""

    def sign_up(self) -> None:
        for name in _CALLBACKS:
            if hasattr(self, name):
                getattr(self._context, name).append(getattr(self, name))

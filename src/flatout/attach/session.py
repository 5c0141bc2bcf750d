"""One watched process: it is recorded from the first event to its end, by the watchers of `watch`."""

from __future__ import annotations

import atexit
import json
import math
import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing import util
from typing import Any

from . import STARTED_NS, imports
from .batch import PaddingInspector
from .context import Context
from .device_clock import DeviceClock
from .graph import GraphInspector
from .patching import hide_from_compiler
from .phases import Phases, StepWriter
from .recorder import Output, Recorder, fact
from .sites import Sites
from .tracer import NOBODY, Tracer, clock
from .watch import make_watchers
from .watch.interruptions import compile_seconds, count_compiled

OLDEST_TORCH = (2, 4)
_HOUSEKEEPING_S = 0.25
_STATE_EVERY_S = 10.0
_CHUNK_BYTES, _WORKER_CHUNK_BYTES = 1 << 20, 1 << 16


class Session:
    """Opens the recording, has the events read, and ends it all. What is seen is up to the watchers."""

    def __init__(self, torch: Any, folder: str, settings: Mapping[str, Any]) -> None:
        self._torch = torch
        self._folder = folder
        self._recording: Output | None = None
        self._role = "trainer"
        self._started_ns = STARTED_NS
        self._state: dict[str, object] = {}
        self._next_state = self._next_housekeeping = 0.0
        self._read_index = 0  # of the last step, when events were last read
        self._training_thread: int | None = None  # until it is written down
        self._device = DeviceClock(torch, self._append) if torch.version.cuda is not None else None
        writer = StepWriter(self.output)
        self.phases = Phases(writer)
        self.tracer = Tracer(self._consume)
        self.context = Context(
            torch=torch,
            tracer=self.tracer,
            phases=self.phases,
            writer=writer,
            sites=Sites(self.output),
            graph=GraphInspector(torch, self.phases, PaddingInspector(torch, self.output)),
            output=self.output,
            trouble=self.trouble,
            settings=settings,
            device=self._device,
            backward_observer=self._device,
            open_lines=lambda: self._open("lines"),
            enter_worker=self._enter_worker,
            is_settling=_is_settling,
        )
        self.tracer.on_claim = self._begin
        if self._device is not None:
            self.tracer.on_wake = self._device.wakes
            self.context.take_own_s.append(self._device.take_own_s)

    def install(self) -> None:
        for watcher in make_watchers(self.context):
            watcher.install()
            watcher.sign_up()
        if self._device is not None:
            self.context.at_finish.append(self._device.close)
        hide_from_compiler(self._torch, __package__)
        os.register_at_fork(after_in_child=self._after_fork)
        atexit.register(self.close)
        # Children that multiprocessing forks leave without atexit; its finalizers they do run.
        util.register_after_fork(self, lambda session: util.Finalize(session, session.close, exitpriority=0))

    def output(self) -> Output:
        """This process's recording, made when there is first something to record."""
        if self._recording is None:
            self._recording = self._open("main")
        return self._recording

    def _append(self, body: bytes) -> int:
        return self.output().append(body)

    def _open(self, thread: str) -> Output:
        name = f"{os.getpid()}-{time.perf_counter_ns()}{'' if thread == 'main' else '.' + thread}.rec"
        facts: dict[str, object] = {
            "pid": os.getpid(),
            "ppid": os.getppid(),
            "role": self._role,
            "thread": thread,
            **read_rank(),
            "host": socket.gethostname(),
            "start_ns": self._started_ns,
            "start_unix_ns": time.time_ns() - time.perf_counter_ns() + self._started_ns,
            "python": platform.python_version(),
            "argv0": sys.argv[0] if getattr(sys, "argv", None) else "",
        }
        chunk_bytes = _CHUNK_BYTES if self._role == "trainer" and thread == "main" else _WORKER_CHUNK_BYTES
        try:
            folder = os.path.join(self._folder, "proc")
            os.makedirs(folder, exist_ok=True)
            return Recorder(os.path.join(folder, name), facts, chunk_bytes)
        except OSError as error:
            sys.stderr.write(f"flatout: cannot record process {os.getpid()} ({error}); it runs unrecorded\n")
            return Output()

    def _begin(self, now: float) -> None:
        """The training thread is known."""
        try:
            self._training_thread = threading.get_native_id()
            self.phases.forget()
            self.phases.begin(now)
            for call in self.context.at_begin:
                call()
        except Exception as error:
            self.trouble(error)

    def _enter_worker(self, info: Any) -> None:
        self.tracer.switch_off()
        self._role = "worker"
        value = {"loader": None, "worker": info.id, "num_workers": info.num_workers, "start_ns": self._started_ns}
        self.output().text("worker", value)

    def _consume(self, codes: list[int], moments: list[float]) -> None:
        """Called at the end of a step now and then: events become records, running totals are brought up to date."""
        phases, tracer, context = self.phases, self.tracer, self.context
        phases.on_device = tracer.on_device = self._device is not None and self._device.ready
        phases.consume(codes, moments)
        now, index = clock(), phases.index
        tracer.want_graph = context.graph.is_due(index)
        own_s = 0.0
        for take_own_s in context.take_own_s:
            own_s += take_own_s()
        phases.own_s += own_s / max(1, index - self._read_index)
        self._read_index = index
        every_step = False
        for at_step_end in context.at_step_end:
            every_step |= at_step_end(codes, index, now)
        tracer.every_step = every_step
        tracer.want_look = tracer.want_graph or tracer.window is not None or context.graph.padding.is_due()
        tracer.rest_for = 0 if every_step else phases.rest_for
        if now < self._next_housekeeping:
            return
        self._next_housekeeping = now + _HOUSEKEEPING_S
        if self._training_thread is not None:
            # The kernel's number of it: by that its time is counted from outside.
            self.output().text("thread", {"tid": self._training_thread})
            self._training_thread = None
        context.sites.flush(index, now)
        if now >= self._next_state and index >= 2:
            self._note_state()
            self._next_state = now + _STATE_EVERY_S

    def _note_state(self, at_end: bool = False) -> None:
        state = read_torch_state(self._torch, self.context)
        if at_end and self._state:
            # A profiler around the training has ended with it.
            state["profiler_enabled"] = self._state.get("profiler_enabled", False)
        if at_end:
            state["float64_factors"] = self._time_float64()
        for add_state in self.context.add_state:
            add_state(state, self.phases.index)
        # 0 stands for batches that no loader gave.
        state["training_loaders"] = sorted(self.phases.training_loaders - {0})
        if state != self._state:
            self._state = state
            self.output().text("torch", state)

    def _time_float64(self) -> dict[str, float] | None:
        """What float32 would gain, of a script that computes in float64; it has ended and waits for nothing."""
        try:
            return self.context.graph.wide.time()
        except Exception:
            return None  # too little memory, say

    def _after_fork(self) -> None:
        """In a forked child: nothing of the parent's recording is ours, and its threads are gone."""
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.close()
        self._started_ns = time.perf_counter_ns()
        self.context.writer.forget()
        self.phases.forget()
        if self.tracer.owner != NOBODY:
            self.tracer.forget()
        self.context.sites.forget()
        for call in self.context.at_fork:
            call()

    def trouble(self, error: Exception) -> None:
        """A hook of ours failed: say so once, put everything back, and let the script run on bare."""
        if self.tracer.owner == NOBODY:
            return
        self.tracer.switch_off()
        try:
            words = f"{type(error).__name__}: {error}"
            sys.stderr.write(f"flatout: stopped watching process {os.getpid()} ({words})\n")
            self.output().text("notice", fact("run.stopped_watching", error=words))
            self.uninstall()
        except Exception:
            pass

    def uninstall(self) -> None:
        self.tracer.switch_off()
        self.context.patches.restore()
        for call in self.context.at_uninstall:
            call()
        imports.forget()

    def close(self) -> None:
        """The end of the process, or of watching it."""
        self.context.is_ending = True
        try:
            for call in self.context.at_stop:
                call()
            if self._recording is not None:
                self._finish(self._recording)
                self._recording = Output()
        except Exception:
            pass

    def _finish(self, recording: Output) -> None:
        self._next_state = math.inf  # below
        if self.tracer.owner != NOBODY:
            self.tracer.wake()
            self.tracer.flush(clock())
            self.phases.finish()
        if self.phases.index >= 0:
            for call in self.context.at_finish:
                call()
            self._note_state(at_end=True)
        self.context.sites.flush(self.phases.index, clock())
        # Set when an uncaught exception ends the script: tells which of several ranks failed.
        failed = getattr(sys, "last_type", None)
        end = {"end_ns": time.perf_counter_ns(), "error": failed.__name__ if failed is not None else None}
        recording.text("exit", end)
        recording.close()


_session: Session | None = None
_settling_asked: Callable[[], bool] | None = None


def install(environ: Mapping[str, str]) -> bool:
    """Watch this process if its torch can be watched."""
    global _session
    if _session is not None:
        return True
    folder = environ.get("FLATOUT_RUN_DIR")
    torch = sys.modules.get("torch")
    if not folder or torch is None:
        return False
    version = tuple(int(part) for part in str(torch.__version__).split("+")[0].split(".")[:2])
    if version < OLDEST_TORCH:
        sys.stderr.write(f"flatout: torch {torch.__version__} is older than 2.4; the script runs unwatched\n")
        return False
    settings = json.loads(environ.get("FLATOUT_SETTINGS") or "{}")
    session = Session(torch, folder, settings if isinstance(settings, dict) else {})
    session.install()
    _session = session
    return True


def detach() -> None:
    global _session
    if _session is not None:
        _session.uninstall()
        _session.close()
        _session = None


def end_recording() -> None:
    """The process is about to exit past Python: complete its recording."""
    if _session is not None:
        _session.close()


def tell_of_settling(ask: Callable[[], bool]) -> None:
    """`ask()` says whether something that was brought in is not yet as it will be."""
    global _settling_asked
    _settling_asked = ask


def _is_settling() -> bool:
    return _settling_asked is not None and _settling_asked()


def text(what: str, value: object) -> None:
    """Into this process's recording, if it has one."""
    if _session is not None:
        _session.output().text(what, value)


# Settings as they live in the process: what the script really runs with, whatever its config says.


def _is_profiler_enabled(torch: Any) -> bool:
    ask = getattr(torch.autograd, "_profiler_enabled", None)
    return bool(ask()) if ask is not None else False


def read_torch_state(torch: Any, context: Context) -> dict[str, object]:
    """Backends, precision and threads now. Touches CUDA only if the script has."""
    graph = context.graph
    state: dict[str, object] = {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda,
        "device_name": None,
        "matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "anomaly_mode": graph.anomaly or torch.is_anomaly_enabled(),
        "anomaly_operations": graph.operations or None,
        "anomaly_ms": graph.anomaly_ms,
        "profiler_enabled": not context.is_recording_kernels() and _is_profiler_enabled(torch),
        "num_threads": torch.get_num_threads(),
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "compiled": graph.compiled or count_compiled("frames") > 0,
        "compiled_frames": count_compiled("frames"),
        "compile_s": compile_seconds(),
        "graph_breaks": count_compiled("graph_break"),
        "grad_dtypes": _shares(graph.dtypes),
        "grad_elements": _shares(graph.elements),
        # Of the convolutions that tensor cores can take, by layout; and of all convolutions and matrix products.
        "convolution_layouts": _shares(graph.convolutions.layouts),
        "convolution_share": _shares(graph.convolutions.counts).get("convolutions"),
    }
    # Old and new names for TF32 may not be mixed in one process: reading is safe only through the old ones.
    for name, owner in (("matmul_allow_tf32", torch.backends.cuda.matmul), ("cudnn_allow_tf32", torch.backends.cudnn)):
        try:
            state[name] = bool(owner.allow_tf32)
        except (RuntimeError, AttributeError):
            state[name] = None
    if torch.cuda.is_initialized():
        index = torch.cuda.current_device()
        state["device_name"] = torch.cuda.get_device_name(index)
        state["device_uuid"] = str(getattr(torch.cuda.get_device_properties(index), "uuid", "")) or None
        state["devices_used"] = torch.cuda.device_count()
        stats = torch.cuda.memory_stats(index)
        state["memory_peak"] = torch.cuda.max_memory_reserved(index)
        state["memory_allocated_peak"] = stats.get("allocated_bytes.all.peak")
        state["memory_split_peak"] = stats.get("inactive_split_bytes.all.peak")
        state["alloc_retries"] = stats.get("num_alloc_retries")
        state["memory_allowed_share"] = _memory_allowed_share(torch, index)
        state["alloc_conf"] = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF")
    return state


def _memory_allowed_share(torch: Any, index: int) -> float | None:
    """Of the device, what the script lets this process take; None where torch does not tell."""
    ask = getattr(torch.cuda, "get_per_process_memory_fraction", None)
    try:
        return None if ask is None else float(ask(index))
    except (RuntimeError, ValueError, TypeError):
        return None


def _shares(counts: dict[str, int]) -> dict[str, float]:
    total = sum(counts.values())
    return {name: round(count / total, 4) for name, count in counts.items()} if total else {}


def read_rank() -> dict[str, int | None]:
    """Which rank this process is, by the variables torchrun and its like set."""

    def number(name: str) -> int | None:
        text = os.environ.get(name, "")
        return int(text) if text.isdigit() else None

    return {name.lower(): number(name) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}

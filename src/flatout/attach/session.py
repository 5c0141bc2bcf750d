"""One watched process: what is installed in it, where it records, and how it all ends."""

from __future__ import annotations

import atexit
import json
import os
import platform
import socket
import sys
import time
from collections.abc import Mapping
from multiprocessing import util
from typing import TYPE_CHECKING, Any

from . import STARTED_NS, imports
from .batch import PaddingInspector
from .device_clock import DeviceClock
from .graph import GraphInspector
from .patching import Patches, hide_from_compiler
from .phases import Phases
from .recorder import Recorder
from .sites import Sites
from .state import read_rank, read_torch_state
from .steps import StepWriter
from .tracer import NOBODY, Tracer, clock
from .watch.backward import BackwardWatch, RecomputeWatch
from .watch.fetch import FetchWatch
from .watch.hidden_syncs import SyncWindows
from .watch.interruptions import CollectorWatch, OutputWatch, TrainModeWatch
from .watch.lines import DEFAULT_HZ, LineSampler, Sampler, WorkerSampler
from .watch.loader import LoaderWatch
from .watch.optimizer import GraphWatch, OptimizerWatch
from .watch.transfers import TransferWatch

if TYPE_CHECKING:
    from .watch.stages import StageWatch

OLDEST_TORCH = (2, 4)
_HOUSEKEEPING_S = 0.25
_STATE_EVERY_S = 10.0
_WORKER_CHUNK_BYTES = 1 << 16


class _Nothing:
    """Takes the place of a recording that could not be made: the script runs on, unrecorded."""

    def append(self, body: bytes) -> int:
        return -1

    def put(self, place: int, body: bytes) -> int:
        return -1

    def text(self, what: str, value: object) -> None:
        return

    def close(self) -> None:
        return


class Session:
    """Owns every part of ours in this process."""

    def __init__(self, torch: Any, folder: str, settings: Mapping[str, Any]) -> None:
        self._torch = torch
        self._folder = folder
        self._settings = settings
        self._recorder: Recorder | _Nothing | None = None
        self._role = "trainer"
        self._started_ns = STARTED_NS
        self._state: dict[str, object] = {}
        self._next_state = 0.0
        self._sampler: Sampler | None = None
        self.writer = StepWriter(self.output)
        self.phases = Phases(self.writer)
        self.tracer = Tracer(self._consume)
        self.sites = Sites(self.output)
        self.padding = PaddingInspector(torch, self.output)
        self.graph = GraphInspector(torch, self.phases, self.padding)
        self._patches = Patches()
        self._device: DeviceClock | None = None
        if torch.version.cuda is not None:
            self._device = DeviceClock(torch, lambda body: self.output().append(body))
        self._stages: StageWatch | None = None
        if self._settings.get("stages"):
            # Only where it is asked for: every import delays the script's start.
            from .watch.stages import StageWatch

            self._stages = StageWatch(torch, self.tracer, self._device, self.output)
        self._optimizers = OptimizerWatch(torch, self.tracer, self._device, self.output, self.trouble)
        self._collector = CollectorWatch(self.tracer)
        self._recomputing = RecomputeWatch(torch, self.tracer)
        self._train_mode = TrainModeWatch(torch, self.tracer, self.trouble)
        self._fetching = FetchWatch(self.output, self._enter_worker, self.trouble)
        self._transfers: TransferWatch | None = None
        self._windows: SyncWindows | None = None
        self._next_housekeeping = 0.0
        self._index_then = 0
        self.tracer.on_claim = self._begin
        if self._device is not None:
            self.tracer.on_wake = self._device.wakes

    def install(self) -> None:
        torch, tracer, patches = self._torch, self.tracer, self._patches
        passes = self._stages or self._device
        BackwardWatch(torch, tracer, passes, self.graph, self.trouble).install(torch.autograd, patches)
        self._train_mode.install(patches)
        self._optimizers.install(torch, patches)
        self._collector.install()
        loaders = LoaderWatch(torch, tracer, self._device, self.output, self.trouble, self.padding)
        imports.after_import("torch.utils.data.dataloader", lambda m: loaders.install(m, patches))
        imports.after_import("torch.utils.checkpoint", lambda m: self._recomputing.install(m, patches))
        imports.after_import("torch.utils.data._utils.fetch", lambda m: self._fetching.install(m, patches))
        OutputWatch(tracer, self.writer, self.sites, self.trouble).install(torch, patches)
        if torch.version.cuda is not None or self._settings.get("device_patches"):
            self._transfers = transfers = TransferWatch(torch, tracer, self.sites, self.trouble)
            transfers.install(patches)
            GraphWatch(torch, tracer, self._optimizers, self.trouble).install(patches)
            if self._settings.get("sync_windows", True):
                self._windows = SyncWindows(torch, self.sites, transfers.watched_call)
        if self._stages is not None:
            self._stages.install(patches)
        hide_from_compiler(torch, __package__)
        os.register_at_fork(after_in_child=self._forked)
        atexit.register(self.close)
        # Children that multiprocessing forks leave without atexit; its finalizers they do run.
        util.register_after_fork(self, lambda session: util.Finalize(session, session.close, exitpriority=0))

    def output(self) -> Recorder | _Nothing:
        """This process's recording, made when there is first something to record."""
        if self._recorder is None:
            self._recorder = self._open("main")
        return self._recorder

    def _open(self, thread: str) -> Recorder | _Nothing:
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
        chunk = 1 << 20 if self._role == "trainer" and thread == "main" else _WORKER_CHUNK_BYTES
        try:
            folder = os.path.join(self._folder, "proc")
            os.makedirs(folder, exist_ok=True)
            return Recorder(os.path.join(folder, name), facts, chunk)
        except OSError as error:
            sys.stderr.write(f"flatout: cannot record process {os.getpid()} ({error}); it runs unrecorded\n")
            return _Nothing()

    def _begin(self, now: float) -> None:
        """The training thread has shown itself."""
        try:
            self.phases.forget()
            self.phases.begin(now)
            hz = float(self._settings.get("lines_hz", DEFAULT_HZ))
            if hz > 0 and self._sampler is None:
                self._sampler = LineSampler(self.tracer, self.phases, lambda: self._open("lines"), hz)
                self._sampler.start()
        except Exception as error:
            self.trouble(error)

    def _enter_worker(self, info: Any) -> None:
        """This process turns out to be a loader's worker: only the cost of samples is of interest here."""
        self.tracer.switch_off()
        self._role = "worker"
        value = {"loader": None, "worker": info.id, "num_workers": info.num_workers, "start_ns": self._started_ns}
        self.output().text("worker", value)
        hz = float(self._settings.get("lines_hz", DEFAULT_HZ))
        # All workers of a loader run the same code: the first tells of all.
        if hz > 0 and info.id == 0 and self._sampler is None:
            fetching = self._fetching
            self._sampler = WorkerSampler(fetching.is_fetching, fetching.root, lambda: self._open("lines"), hz)
            self._sampler.start()

    def _consume(self, codes: list[int], moments: list[float]) -> None:
        """Called at the end of a step now and then: events become records, running totals are brought up to date."""
        self.phases.on_device = self.tracer.on_device = self._device is not None and self._device.ready
        self.phases.consume(codes, moments)
        now = clock()
        self.tracer.want_look = self.graph.due(self.phases.index)
        self._fetching.rearm()
        own_s = self._device.take_own_s() if self._device is not None else 0.0
        own_s += self._sampler.take_own_s() if self._sampler is not None else 0.0
        own_s += self._stages.take_own_s() if self._stages is not None else 0.0
        self.phases.own_s += own_s / max(1, self.phases.index - self._index_then)
        self._index_then = self.phases.index
        if self._windows is not None:
            self._windows.at_step_end(self.phases.index, now)
            self.tracer.every_step = self._windows.is_open
        self.tracer.rest_for = 0 if self.tracer.every_step else self.phases.rest_for
        if self._stages is not None:
            self._sample_stages(self._stages, codes)
        if now < self._next_housekeeping:
            return
        self._next_housekeeping = now + _HOUSEKEEPING_S
        self.sites.flush(self._windows.steps if self._windows is not None else 0)
        if now >= self._next_state and self.phases.index >= 2:
            self._note_state()
            self._next_state = now + _STATE_EVERY_S

    def _sample_stages(self, stages: StageWatch, codes: list[int]) -> None:
        stages.at_step_end(codes, self.phases.index)
        window = self._windows is not None and self._windows.is_open
        self.tracer.every_step = window or stages.wants_every_step
        if stages.is_open:
            self.tracer.rest_for = 0

    def _note_state(self) -> None:
        state = read_torch_state(self._torch, self.graph)
        # 0 stands for batches that no loader gave.
        if (recomputed := self._recomputing.so_far(self.phases.index)) is not None:
            state["recomputed"] = recomputed
        state["training_loaders"] = sorted(self.phases.training_loaders - {0})
        if state != self._state:
            self._state = state
            self.output().text("torch", state)

    def _forked(self) -> None:
        """In a forked child: nothing of the parent's recording is ours, and its threads are gone."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.close()
        self._sampler = None
        self._fetching.forget()
        self._started_ns = time.perf_counter_ns()
        self.writer.forget()
        self.phases.forget()
        if self.tracer.owner != NOBODY:
            self.tracer.forget()
        if self._stages is not None:
            self._stages.forget()
        self.sites.forget()
        if self._transfers is not None:
            self._transfers.forget()

    def trouble(self, error: Exception) -> None:
        """A hook of ours failed: say so once, put everything back, and let the script run on bare."""
        if self.tracer.owner == NOBODY:
            return
        self.tracer.switch_off()
        try:
            sys.stderr.write(f"flatout: stopped watching process {os.getpid()} ({type(error).__name__}: {error})\n")
            self.output().text("notice", f"stopped watching: {type(error).__name__}: {error}")
            self.uninstall()
        except Exception:
            pass

    def uninstall(self) -> None:
        self.tracer.switch_off()
        self._patches.restore()
        self._optimizers.remove()
        self._collector.remove()
        self._train_mode.uninstall()
        imports.forget()
        if self._stages is not None:
            self._stages.stop("")
        if self._windows is not None:
            self._windows.close()

    def close(self) -> None:
        """The end of the process, or of watching it."""
        try:
            if self._sampler is not None:
                self._sampler.stop()
                self._sampler = None
            if self._windows is not None:
                self._windows.close()
            if self._recorder is not None:
                if self.tracer.owner != NOBODY:
                    self.tracer.wake()
                    self.tracer.flush(clock())
                    self.phases.finish()
                if self.phases.index >= 0:
                    if self._stages is not None:
                        self._stages.close()
                    if self._device is not None:
                        self._device.close()
                    self._note_state()
                self.sites.flush(self._windows.steps if self._windows is not None else 0)
                # Set when an uncaught exception ends the script: tells which of several ranks failed.
                failed = getattr(sys, "last_type", None)
                end = {"end_ns": time.perf_counter_ns(), "error": failed.__name__ if failed is not None else None}
                self._recorder.text("exit", end)
                self._recorder.close()
                self._recorder = _Nothing()
        except Exception:
            pass


_session: Session | None = None


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
    """Undo `install`."""
    global _session
    if _session is not None:
        _session.uninstall()
        _session.close()
        _session = None


def end_recording() -> None:
    """The process is about to leave without a word to Python: what it recorded is brought to its end."""
    if _session is not None:
        _session.close()


def text(what: str, value: object) -> None:
    """Into this process's recording, if it has one."""
    if _session is not None:
        _session.output().text(what, value)

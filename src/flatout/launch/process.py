"""Starts the user's command as if flatout were not there: same terminal, same process group, same exit code.

The child shares our standard streams and process group, so Ctrl-C, job control and pipes reach it without us. Signals
that were sent to flatout alone are passed on. Nothing ties the child to us: it survives our death.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from flatout.errors import FlatoutError
from flatout.records.message import Message, message

BOOTSTRAP = Path(__file__).resolve().parents[1] / "attach" / "bootstrap"
_FROM_KEYS = (signal.SIGINT, signal.SIGQUIT)
_TO_END = (signal.SIGTERM, signal.SIGHUP)
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, *_FROM_KEYS)
_GRACE_S = 5.0
_SCRIPTS = (".py", ".pyw", ".pyc", ".pyz")
# What a shell makes of Ctrl-C.
INTERRUPTED = 130


def command_line(cmd: Sequence[str], python: str | None = None) -> list[str]:
    """What to execute for the words after our options. Raises FlatoutError before anything is started."""
    first, rest = cmd[0], list(cmd[1:])
    if first == "-m" and not rest:
        raise FlatoutError("-m needs the name of a module: flatout run -m pkg.train")
    if first.startswith("-m"):
        return [interpreter(python), *cmd]
    if _is_script(first):
        if not Path(first).exists():
            raise FlatoutError(f"no such script: {first!r} (looked in {os.getcwd()!r})")
        return [interpreter(python), first, *rest]
    return [_command(first, python), *rest]


def _is_script(word: str) -> bool:
    path = Path(word)
    if path.suffix in _SCRIPTS:
        return True
    if path.is_dir():
        return (path / "__main__.py").exists()
    return path.is_file() and not os.access(path, os.X_OK)


def interpreter(python: str | None) -> str:
    """The interpreter for a bare script: `--python`, or our own."""
    if python is None:
        return sys.executable
    found = shutil.which(python)
    if found is None:
        raise FlatoutError(f"--python {python!r} is no interpreter: give its path, or a command on PATH")
    return found


def _command(word: str, python: str | None) -> str:
    """A command on PATH, else one installed beside the interpreter (a virtual environment that is not activated)."""
    beside = os.path.dirname(interpreter(python))
    found = shutil.which(word) or ("/" not in word and shutil.which(word, path=beside)) or None
    if found is None:
        raise FlatoutError(f"{word!r} is neither a script here nor a command on PATH")
    # By its own name where that works: some programs look at argv[0].
    return word if shutil.which(word) else found


def child_environment(environ: Mapping[str, str], run_dir: Path, settings: Mapping[str, object]) -> dict[str, str]:
    """The user's environment plus what the bootstrap needs."""
    own = {"FLATOUT_RUN_DIR": str(run_dir), "PYTHONPATH": str(BOOTSTRAP)}
    if environ.get("PYTHONPATH"):
        # Never join an empty one: an empty entry would put the working directory on the path.
        own["PYTHONPATH"] += os.pathsep + environ["PYTHONPATH"]
    if settings:
        own["FLATOUT_SETTINGS"] = json.dumps(dict(settings))
    return {**environ, **own}


@contextmanager
def hold_end_signals() -> Iterator[None]:
    """A request to end that comes when the script has already ended waits for the verdict, which takes a moment."""
    with _handled(_TO_END, lambda number, frame: None):
        yield


@contextmanager
def _handled(numbers: Sequence[signal.Signals], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """An ignored signal stays ignored, in us and in the child: that is how nohup and background jobs work."""
    before: dict[signal.Signals, Any] = {}
    try:
        for number in numbers:
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@dataclass(slots=True)
class Child:
    """A running command. Use as a context manager: signals are passed on from before its start until it has ended."""

    argv: Sequence[str]
    environ: Mapping[str, str]
    # File descriptors instead of our own stdout and stderr (the full-screen view), or None.
    stdout: int | None = None
    stderr: int | None = None
    _process: subprocess.Popen[bytes] | None = None
    _early: list[int] = field(default_factory=list)
    _signals: ExitStack = field(default_factory=ExitStack)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Child:
        self._signals.enter_context(_handled(_FORWARDED, self._pass_on))
        try:
            self._start()
        except BaseException:
            self._signals.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._signals.close()

    def _start(self) -> None:
        try:
            # Descriptors of ours close by themselves on exec; those the user handed down (`3<data`) go through.
            self._process = subprocess.Popen(
                self.argv, env=self.environ, close_fds=False, stdout=self.stdout, stderr=self.stderr
            )
        except OSError as error:
            raise FlatoutError(f"cannot start {self.argv[0]!r}: {error.strerror or error}") from error
        for number in self._early:
            self._process.send_signal(number)

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        if number in _FROM_KEYS and in_foreground():
            return  # a Ctrl-C: the terminal has sent it to the child as well
        if self._process is None:
            self._early.append(number)
        else:
            self._process.send_signal(number)

    def send(self, number: int) -> None:
        """A signal of ours; nothing happens if it has ended."""
        assert self._process is not None
        self._process.send_signal(number)

    @contextmanager
    def limited_to(self, limit_s: float) -> Iterator[None]:
        """Within this block the child is asked to end when its time is over, and made to if it does not."""
        assert self._process is not None
        timers = [
            threading.Timer(limit_s, self._process.terminate),
            threading.Timer(limit_s + _GRACE_S, self._process.kill),
        ]
        for timer in timers:
            timer.daemon = True
            timer.start()
        try:
            yield
        finally:
            for timer in timers:
                timer.cancel()

    def wait(self) -> int:
        """The exit code as a shell gives it: 128 + N after signal N."""
        assert self._process is not None
        code = self._process.wait()
        return 128 - code if code < 0 else code


def in_foreground() -> bool:
    """Whether keys typed at the terminal send their signals to our process group."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


# A request to end is as good as Ctrl-C: the trial that runs ends with us, and what was found is shown.


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# What a script that was killed leaves behind: its cache of samples, in shared memory, which nobody else would free.


def reap_shared_memory() -> None:
    """Remove this user's caches that no process has open any more."""
    from flatout.feed.cache.segment import SHARED_MEMORY, reap  # at the end: not before the script has started

    reap(SHARED_MEMORY)


# A look that ends early: the script is asked to end from within, and made to from here if it does not.


# As the watched process knows them.
BEGAN, ENDS = "look-began", "look-ends"
_LOOK_S = 0.1
# A script that makes no step when its time is over (it evaluates) is given so much longer.
_LATE_S = 10.0
# What it does at a Ctrl-C may take long: a last evaluation, a checkpoint. Only then comes a second one, and an order.
_END_GRACE_S = ((signal.SIGINT, 60.0), (signal.SIGTERM, 20.0))


@dataclass(frozen=True, slots=True)
class LookLimit:
    """After how many optimizer steps a look ends, or how long after the first; whichever comes first."""

    steps: int | None = None
    seconds: float | None = None

    def settings(self) -> dict[str, object]:
        """For the watched process."""
        given = {"end_steps": self.steps, "end_s": self.seconds}
        return {name: value for name, value in given.items() if value is not None}


class EarlyEnd:
    """Within this block the limit is kept: `send` signals the process that was started."""

    def __init__(
        self,
        limit: LookLimit,
        folder: Path,
        send: Callable[[int], None],
        grace_s: tuple[tuple[signal.Signals, float], ...] = _END_GRACE_S,
        late_s: float = _LATE_S,
    ) -> None:
        self._limit = limit
        self._folder = folder
        self._send = send
        self._grace_s = grace_s
        self._late_s = late_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="flatout-ending", daemon=True)

    def __enter__(self) -> EarlyEnd:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def conclude(self, code: int) -> Iterator[Message]:
        """What to say of a script that ended with this code, if it was asked to; the files of the request go."""
        was_asked = (self._folder / ENDS).exists()
        for name in (BEGAN, ENDS):
            (self._folder / name).unlink(missing_ok=True)
        if not was_asked:
            return
        yield message("run.ended_on_request")
        # By a signal of ours, or of its own making; else there may be an error on the screen.
        if code and code < 128:
            yield message("run.ended_on_request_code", code=code)

    def _follow(self) -> None:
        if not self._wait_until_asked():
            return
        for number, grace_s in self._grace_s:
            if self._is_over.wait(grace_s):
                return
            self._send(number)

    def _wait_until_asked(self) -> bool:
        """Until the script asks itself to end, or ought to have; False where it has ended before."""
        due_s = None
        while not (self._folder / ENDS).exists():
            if self._is_over.wait(_LOOK_S):
                return False
            if due_s is None and self._limit.seconds is not None and (self._folder / BEGAN).exists():
                due_s = time.monotonic() + self._limit.seconds + self._late_s
            if due_s is not None and time.monotonic() > due_s:
                (self._folder / ENDS).touch()
                self._send(signal.SIGINT)
        return True

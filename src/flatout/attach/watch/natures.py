"""What a thread of this process is doing at one moment: Python, native code, or waiting, and for what.

The kernel tells by `/proc/self/task/<id>/syscall`: the system call that a sleeping thread is in, or "running". It is
read while the reader holds the interpreter, so a thread that wants to run Python is found waiting for it, and one that
is "running" runs native code.
"""

from __future__ import annotations

import ctypes
import dis
import os
import platform
import resource
import threading
from types import CodeType, FrameType

from .. import sites
from ..wire import FILE, LOCK, NATIVE, PIPE, PROCESS, PYTHON, SLEEP, UNKNOWN_NATURE

_BYTES = 255
# Numbers of system calls by what a thread that sleeps in them waits for; x86-64, then aarch64.
_WAITS: dict[str, dict[int, tuple[int, ...]]] = {
    "x86_64": {
        FILE: (1, 2, 4, 5, 6, 17, 18, 20, 40, 74, 75, 78, 82, 87, 162, 217, 257, 262, 277, 285, 295, 296, 332),
        PIPE: (7, 23, 42, 43, 44, 45, 46, 47, 232, 270, 271, 281, 288, 299, 307),
        PROCESS: (56, 57, 58, 61, 247, 435),
        SLEEP: (34, 35, 128, 230),
    },
    "aarch64": {
        FILE: (48, 56, 61, 64, 66, 67, 68, 69, 70, 71, 79, 80, 81, 82, 83, 84, 285, 291),
        PIPE: (22, 72, 73, 202, 203, 206, 207, 211, 212, 242, 243, 269),
        PROCESS: (95, 220, 260, 435),
        SLEEP: (101, 115, 133, 137),
    },
}
# read, readv: of a file or of a pipe; futex: the interpreter, a lock, or threads of a library.
_READS = {"x86_64": (0, 19), "aarch64": (63, 65)}
_FUTEX = {"x86_64": 202, "aarch64": 98}
# Methods by which Python code waits for another thread.
_LOCKING = frozenset(("acquire", "get", "join", "put", "result", "wait"))


def native_id_of(ident: int) -> int:
    """The kernel's number of a thread of this process. Raises OSError where it is not known."""
    thread = next((thread for thread in threading.enumerate() if thread.ident == ident), None)
    if thread is threading.main_thread():
        return os.getpid()  # in a forked child Python still has the number it had in the parent
    if thread is None or thread.native_id is None:
        raise OSError("not a thread of Python's")
    return thread.native_id


class HeldFile:
    """A file of the kernel's read while the reader holds the interpreter: no thread of Python runs meanwhile."""

    def __init__(self, path: str) -> None:
        self._buffer = ctypes.create_string_buffer(_BYTES + 1)
        # PyDLL: the interpreter is held during the call.
        self._pread = ctypes.PyDLL(None, use_errno=True).pread
        self._pread.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long]
        self._pread.restype = ctypes.c_ssize_t
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> bytes:
        """Empty where the kernel says nothing."""
        size = self._pread(self._fd, ctypes.addressof(self._buffer), _BYTES, 0)
        return bytes(self._buffer.raw[:size]) if size > 0 else b""

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def count_waits() -> int:
    """How often the calling thread has waited: a sleep is one wait, and taking the interpreter from a thread another.

    The kernel counts it, so a wake-up that comes late on a crowded or virtual machine is not taken for a wait.
    """
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


class ThreadState:
    """Reads what one thread is doing. Raises OSError where the system does not tell."""

    def __init__(self, native_id: int) -> None:
        machine = platform.machine()
        if machine not in _WAITS:
            raise OSError("not known here")
        self._waits = {number: nature for nature, numbers in _WAITS[machine].items() for number in numbers}
        self._reads, self._futex = _READS[machine], _FUTEX[machine]
        self._is_locking: dict[tuple[CodeType, int], bool] = {}
        self._file = HeldFile(f"/proc/self/task/{native_id}/syscall")
        if not self.look():
            self.close()
            raise OSError("not readable")

    def close(self) -> None:
        self._file.close()

    def look(self) -> bytes:
        """What the kernel says of the thread now; empty where it says nothing. `nature` reads it."""
        return self._file.read()

    def nature(self, look: bytes, frame: FrameType, has_waited: bool) -> int:
        """What the thread was doing, whose innermost frame is `frame`.

        `has_waited`: the interpreter had to be taken from somebody. A thread that is running then, or waits for nobody
        in particular, is on its way to waiting for the interpreter again.
        """
        words = look.split()
        if not words:
            return UNKNOWN_NATURE
        if words[0] == b"running":
            return PYTHON if has_waited else NATIVE
        number = int(words[0])
        if number == self._futex:
            return LOCK if self._is_locking_call(frame) else _nature_of_futex(words, has_waited)
        if number in self._reads:
            return PIPE if self._is_pipe(int(words[1], 16)) else FILE
        # Asleep outside of any call: a page of a mapped file is read.
        return FILE if number < 0 else self._waits.get(number, NATIVE)

    def _is_locking_call(self, frame: FrameType) -> bool:
        code, at = frame.f_code, frame.f_lasti
        known = self._is_locking.get((code, at))
        if known is None:
            known = self._is_locking[code, at] = _waits_for_thread(code, at)
        return known

    def _is_pipe(self, fd: int) -> bool:
        try:
            return os.readlink(f"/proc/self/fd/{fd}").startswith(("pipe:", "socket:", "anon_inode:"))
        except OSError:
            return False


def _nature_of_futex(words: list[bytes], has_waited: bool) -> int:
    """A wait for the interpreter has a time limit; threads of a native library wait for each other without one."""
    has_limit = len(words) > 4 and int(words[4], 16) != 0
    return PYTHON if has_limit or has_waited else NATIVE


def _waits_for_thread(code: CodeType, at: int) -> bool:
    """Does this instruction enter a lock or wait for a thread? By the names on its line, and `with`."""
    if code.co_filename == threading.__file__:
        return True
    line, names, is_with = None, set(), False
    by_line: dict[int | None, set[str]] = {}
    for instruction in dis.get_instructions(code):
        line = instruction.starts_line if isinstance(instruction.starts_line, int) else line
        names = by_line.setdefault(line, set())
        if instruction.opname in ("LOAD_METHOD", "LOAD_ATTR"):
            names.add(str(instruction.argval))
        if instruction.offset >= at:
            is_with = instruction.opname in ("BEFORE_WITH", "SETUP_WITH")
            break
    return is_with or bool(names & _LOCKING)


class ModuleFrames:
    """Tells whether a stack is within a call of a module of the model, or in a hook that the script put on one."""

    def __init__(self, call: CodeType) -> None:
        """`call` is the code by which torch calls modules and their hooks."""
        codes = [call, *(const for const in call.co_consts if isinstance(const, CodeType))]
        lines = {code: _lines_that_load(code, "forward_call") for code in codes}
        # A torch that is written in another way does not tell hooks apart.
        self._tells_hooks = any(lines.values())
        self._lines = lines if self._tells_hooks else {call: frozenset()}

    def is_within(self, frame: FrameType | None) -> bool:
        """What a hook of the script does is work of the script, unless it calls a module in its turn."""
        is_users = False
        for _ in range(sites.MOST_FRAMES):
            if frame is None:
                return False
            code = frame.f_code
            if code in self._lines:
                return not is_users or not self._tells_hooks or frame.f_lineno in self._lines[code]
            is_users = is_users or sites.is_users(code.co_filename)
            frame = frame.f_back
        return False


# They clip, scale, average or apply gradients and weights.
_ON_GRADIENTS = ("torch.optim", "torch.nn.utils.clip_grad", "torch.amp.grad_scaler", "torch.cuda.amp.grad_scaler")


def is_on_gradients(frame: FrameType | None) -> bool:
    """Has a line of the user's called a function of torch's that works on gradients, and is it at work?"""
    for _ in range(sites.MOST_FRAMES):
        if frame is None or sites.is_users(frame.f_code.co_filename):
            return False
        if str(frame.f_globals.get("__name__", "")).startswith(_ON_GRADIENTS):
            return True
        frame = frame.f_back
    return False


def _lines_that_load(code: CodeType, name: str) -> frozenset[int]:
    loads = [
        instruction.offset
        for instruction in dis.get_instructions(code)
        if instruction.argval == name and instruction.opname in ("LOAD_FAST", "LOAD_DEREF", "LOAD_FAST_BORROW")
    ]
    lines = [(start, end, line) for start, end, line in code.co_lines() if line is not None]
    return frozenset(line for offset in loads for start, end, line in lines if start <= offset < end)

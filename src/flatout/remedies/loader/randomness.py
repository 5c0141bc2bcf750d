"""Does a sample draw random numbers? Then another number of workers draws others, and the run's record says so.

A child process makes one sample, as a worker would, and looks whether a generator has moved. The training process
itself reads nothing twice and draws nothing.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from typing import Any

from ..site import Site

_LIMIT_S = 5.0
_DREW, _DREW_NOT, _UNKNOWN = b"1", b"0", b"?"
_SAYS = {
    _DREW: "samples draw random numbers: not the same ones with another number of workers",
    _DREW_NOT: "samples draw no random numbers",
}


def tell_of_randomness(site: Site) -> None:
    """Look once, when a loader that has workers now is first gone through."""
    site.after_import("torch.utils.data.dataloader", lambda module: _install(site, module.DataLoader))


def _install(site: Site, loader_class: Any) -> None:
    looked = False

    def make(original: Any) -> Any:
        def __iter__(loader: Any) -> Any:
            nonlocal looked
            if not looked and site.in_force and site.torch.is_grad_enabled() and loader.num_workers:
                looked = True
                said = site.guarded(lambda: _SAYS.get(draws(site.torch, loader.dataset)), lambda: None)
                if said:
                    site.tell(randomness=said)
            return original(loader)

        return __iter__

    site.replace(loader_class, "__iter__", make)


def draws(torch: Any, dataset: Any) -> bytes:
    """Whether making its first sample moves a generator of torch, Python or numpy; asked in a child process."""
    if not hasattr(dataset, "__getitem__") or not hasattr(os, "fork"):
        return _UNKNOWN
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _answer_and_leave(torch, dataset, writing)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], _LIMIT_S)
        return os.read(reading, 1) or _UNKNOWN if ready else _UNKNOWN
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _answer_and_leave(torch: Any, dataset: Any, writing: int) -> None:
    """In the child: nothing of the parent's may be run on the way out."""
    answer = _UNKNOWN
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        torch.set_num_threads(1)
        before = _states(torch)
        dataset[0]
        answer = _DREW if _states(torch) != before else _DREW_NOT
    except BaseException:
        pass
    finally:
        os.write(writing, answer)
        os._exit(0)


def _states(torch: Any) -> list[object]:
    states: list[object] = [bytes(torch.get_rng_state().numpy().tobytes())]
    if "random" in sys.modules:
        states.append(sys.modules["random"].getstate())
    if "numpy" in sys.modules:
        state = sys.modules["numpy"].random.get_state()
        states.append([part.tobytes() if hasattr(part, "tobytes") else part for part in state])
    return states

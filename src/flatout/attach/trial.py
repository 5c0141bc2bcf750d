"""A trial of the script: it is ended after so many steps, and what it learnt in them is kept for a comparison.

Every backward pass leaves a copy of its loss on the device, read only when the trial is over: no step waits for it. At
the end the weights are digested as well. Then the process leaves at once: what the script would do after its loop, such
as a last evaluation, is no part of a trial.
"""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from . import imports, session
from .patching import Patches

VARIABLE = "FLATOUT_TRIAL"
# A digest of more than this would keep the trial waiting: of larger weights a part stands for all.
_DIGESTED_BYTES = 2 << 30
_DIGESTED_EACH = 1 << 20
# However slow they are, fewer tell nothing.
_FEWEST_STEPS = 8

_NOT_CONTAINED = 70
_NUDGE = 2.0**-20

_trial: Trial | None = None


class Trial:
    """One process that trains; in others (workers, launchers) it never comes to a step."""

    def __init__(self, torch: Any, wanted: Mapping[str, Any]) -> None:
        self._torch = torch
        self._last_step = int(wanted["steps"])
        # Ranks have to leave at the same step: one that left by its own clock would keep the others waiting for it.
        is_alone = os.environ.get("WORLD_SIZE", "1") == "1"
        self._seconds = float(wanted.get("seconds") or math.inf) if is_alone else math.inf
        self._began_s = 0.0
        self._nudges = bool(wanted.get("nudge"))
        self._replays = bool(wanted.get("replay"))
        self._losses: list[Any] = []
        self._taken: dict[int, int] = {}
        self._optimizers: dict[int, Any] = {}
        self._pid = os.getpid()
        self._patches = Patches("__flatout_trial__")
        self._hook: Any = None

    def begin(self) -> None:
        self._patches.replace(self._torch.autograd, "backward", self._make_backward)
        if self._replays:
            from .replay import Replay

            replay, patches = Replay(self._torch), Patches("__flatout_replay__")
            imports.after_import("torch.utils.data.dataloader", lambda module: replay.install(module, patches))
        # torch.optim hides the module of this name behind its own namespace.
        optimizer = sys.modules["torch.optim.optimizer"]
        self._hook = optimizer.register_optimizer_step_post_hook(self._stepped)

    def end(self) -> None:
        self._patches.restore()
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _make_backward(self, original: Any) -> Any:
        compiling = self._torch.compiler.is_dynamo_compiling

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if not compiling():
                self._keep(tensors)
            return original(tensors, *args, **kwargs)

        return backward

    def _keep(self, tensors: Any) -> None:
        try:
            loss: Any = tensors if isinstance(tensors, self._torch.Tensor) else next(iter(tensors), None)
            is_one = loss is not None and loss.numel() == 1
            # A copy: the script may change its loss in place, and a captured graph writes over it.
            self._losses.append(loss.detach().clone() if is_one and not self._is_capturing(loss) else None)
        except Exception:
            self._losses.append(None)

    def _is_capturing(self, loss: Any) -> bool:
        return bool(loss.is_cuda and self._torch.cuda.is_current_stream_capturing())

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        """After a step of any optimizer. Several that take turns make one step together: the furthest counts."""
        mine = id(optimizer)
        if mine not in self._optimizers and self._nudges:
            self._nudge(optimizer)
        self._optimizers[mine] = optimizer
        self._taken[mine] = self._taken.get(mine, 0) + 1
        count, now_s = self._taken[mine], time.perf_counter()
        self._began_s = self._began_s or now_s
        is_enough = count >= self._last_step or (count >= _FEWEST_STEPS and now_s - self._began_s > self._seconds)
        if is_enough and os.getpid() == self._pid:
            self._leave(count)

    def _nudge(self, optimizer: Any) -> None:
        """Each weight by a millionth of itself, up or down; by numbers of our own, the script's are not drawn."""
        torch = self._torch
        with torch.no_grad():
            for group in optimizer.param_groups:
                for weight in group["params"]:
                    draw = torch.Generator(device=weight.device).manual_seed(weight.numel())
                    signs = torch.empty_like(weight).uniform_(-1.0, 1.0, generator=draw).sign_()
                    weight.add_(weight * signs, alpha=_NUDGE)

    def _leave(self, steps: int) -> None:
        try:
            session.text("trial", {"losses": self._read_losses(), "weights": self._digest(), "steps": steps})
            session.end_recording()
        except Exception as error:
            sys.stderr.write(f"flatout: the trial could not be recorded ({type(error).__name__}: {error})\n")
        for child in multiprocessing.active_children():
            child.terminate()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        os._exit(0)

    def _read_losses(self) -> list[str | None]:
        """By their bits: two that print alike may differ. One wait for the device for all of them."""
        if self._torch.cuda.is_initialized():
            self._torch.cuda.synchronize()
        return [float(loss).hex() if loss is not None else None for loss in self._losses]

    def _digest(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        groups = [group for optimizer in self._optimizers.values() for group in optimizer.param_groups]
        weights = [weight.detach() for group in groups for weight in group["params"]]
        whole = sum(weight.numel() * weight.element_size() for weight in weights) <= _DIGESTED_BYTES
        for weight in weights:
            flat = weight.reshape(-1)
            part = flat if whole else flat[:: max(1, flat.numel() * flat.element_size() // _DIGESTED_EACH)]
            digest.update(part.contiguous().cpu().view(self._torch.uint8).numpy().tobytes())
        return digest.hexdigest()


def ready(environ: Mapping[str, str]) -> None:
    """Before the script's own code: what it writes goes elsewhere from here on, or the script does not run at all."""
    wanted = json.loads(environ[VARIABLE])
    if not wanted.get("scratch"):
        return
    try:
        from . import contained

        contained.begin(wanted["scratch"], wanted.get("roots", ()), _note_written)
    except Exception as error:
        sys.stderr.write(f"flatout: the trial cannot be contained ({type(error).__name__}: {error})\n")
        sys.stderr.flush()
        os._exit(_NOT_CONTAINED)


def begin(environ: Mapping[str, str]) -> None:
    """torch is there, watched and remedied: the trial looks on from outside of all that."""
    global _trial
    torch = sys.modules.get("torch")
    if _trial is None and torch is not None:
        _trial = Trial(torch, json.loads(environ[VARIABLE]))
        _trial.begin()


def end() -> None:
    global _trial
    if _trial is not None:
        _trial.end()
        _trial = None


def _note_written(path: str) -> None:
    """One file a line, by appending: every process of the trial notes for itself."""
    wanted = json.loads(os.environ[VARIABLE])
    line = json.dumps(path) + "\n"
    note = os.open(wanted["written"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(note, line.encode())
    finally:
        os.close(note)

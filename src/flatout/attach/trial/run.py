"""A trial: the script ends after a number of steps, and the losses and weights it reached are kept for a comparison.

Every backward pass leaves a copy of its loss on the device. The copies are read when the trial is over: no step waits
for them. At the end the weights are digested as well. Then the process exits at once: what the script would do after
its loop, such as a last evaluation, is not part of a trial.
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
from typing import TYPE_CHECKING, Any

from .. import imports, remedies, session
from ..patching import Patches
from .gate import COMPILER

if TYPE_CHECKING:
    from .loader_throughput import LoaderThroughput
    from .replay import Replay
    from .screening import Screening

VARIABLE = "FLATOUT_TRIAL"
# A digest of more bytes would take too long: larger weights are sampled.
_DIGESTED_BYTES = 2 << 30
_DIGESTED_EACH = 1 << 20
# Fewer steps tell nothing, however slow they are.
_FEWEST_STEPS = 8

_OF_COMPILER = ("TORCHDYNAMO_", "TORCHINDUCTOR_", "TORCH_COMPILE", "TRITON_")
_NOT_CONTAINED = 70

_trial: Trial | None = None


class Trial:
    """One process that trains. In other processes (workers, launchers) no step ever happens."""

    def __init__(self, torch: Any, wanted: Mapping[str, Any]) -> None:
        self._torch = torch
        self._wanted = wanted
        self._last_step = int(wanted["steps"])
        # Ranks must end at the same step: one that left by its own clock would leave the others waiting.
        is_alone = os.environ.get("WORLD_SIZE", "1") == "1"
        self._seconds = float(wanted.get("seconds") or math.inf) if is_alone else math.inf
        self._began_s = 0.0
        # That many steps are enough if that many seconds have passed since step `counted_from`; ranks share no clock.
        enough: tuple[int, int, float] = tuple(wanted.get("enough") or (self._last_step, 0, 0.0))
        self._enough_steps, self._counted_from, self._enough_s = enough
        self._counted_s: float | None = None
        if not is_alone:
            self._last_step = self._enough_steps
        self._digest_at = int(wanted.get("digest_at") or 0)
        self._weights: list[Any] = []
        perturb: tuple[float, int] = tuple(wanted.get("perturb") or (0.0, 0))
        self._perturbed_by, self._perturbation = perturb
        self._reseeds = int(wanted.get("reseed") or 0)
        self._throughput: LoaderThroughput | None = None
        self._screening: Screening | None = None
        self._screened = 0
        self._losses: list[Any] = []
        self._taken: dict[int, int] = {}
        self._optimizers: dict[int, Any] = {}
        self._pid = os.getpid()
        self._patches = Patches("__flatout_trial__")
        self._hook: Any = None

    def begin(self) -> None:
        torch, wanted = self._torch, self._wanted
        self._patches.replace(torch.autograd, "backward", self._make_backward)
        if wanted.get("replay"):
            from .replay import Replay

            _install_on_loaders(Replay(torch, int(wanted["replay"])))
        if wanted.get("feed"):
            from .loader_throughput import LoaderThroughput

            seconds = float(wanted.get("seconds") or math.inf)
            self._throughput = LoaderThroughput(torch, self._last_step, seconds, self._finish_throughput)
            _install_on_loaders(self._throughput)
        if wanted.get("arms"):
            from .screening import TIMED, Screening, Turns

            turns = Turns(wanted.get("warm_up") or 1, wanted.get("timed") or TIMED, wanted.get("settling") or 0)
            self._screening = Screening(torch, wanted["arms"], turns, remedies.make_sites, remedies.suspend)
        # torch.optim hides the module of this name behind its own namespace.
        optimizer = sys.modules["torch.optim.optimizer"]
        self._hook = optimizer.register_optimizer_step_post_hook(self._after_step)

    def end(self) -> None:
        self._patches.restore()
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _make_backward(self, original: Any) -> Any:
        compiling = self._torch.compiler.is_dynamo_compiling

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if not compiling():
                self._keep_loss(tensors)
                if self._screening is not None:
                    self._screening.tidy()
            return original(tensors, *args, **kwargs)

        return backward

    def _keep_loss(self, tensors: Any) -> None:
        try:
            loss: Any = tensors if isinstance(tensors, self._torch.Tensor) else next(iter(tensors), None)
            is_one = loss is not None and loss.numel() == 1
            # A copy: the script may change its loss in place, and a captured graph writes over it.
            self._losses.append(loss.detach().clone() if is_one and not self._is_capturing(loss) else None)
        except Exception:
            self._losses.append(None)

    def _is_capturing(self, loss: Any) -> bool:
        return bool(loss.is_cuda and self._torch.cuda.is_current_stream_capturing())

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        """After a step of any optimizer. Several that take turns make one step together: the furthest counts."""
        mine = id(optimizer)
        if mine not in self._optimizers and self._perturbed_by:
            self._perturb(optimizer)
        if not self._optimizers and self._reseeds:
            self._reseed()
        self._optimizers[mine] = optimizer
        self._taken[mine] = self._taken.get(mine, 0) + 1
        count, now_s = self._taken[mine], time.perf_counter()
        self._began_s = self._began_s or now_s
        if count == self._digest_at and not self._weights:
            self._keep_weights()
        is_enough = self._is_enough(count, now_s)
        if self._throughput is not None:
            is_enough = self._throughput.end_step(count)
        if self._screening is not None and count > self._screened:
            self._screened = count
            self._screening.end_step(count)
        if is_enough and os.getpid() == self._pid:
            self._leave(count)

    def _is_enough(self, count: int, now_s: float) -> bool:
        if count >= self._counted_from and self._counted_s is None:
            self._counted_s = now_s
        if count >= self._last_step or (count >= _FEWEST_STEPS and now_s - self._began_s > self._seconds):
            return True
        counted_s = now_s - self._counted_s if self._counted_s is not None else 0.0
        return count >= self._enough_steps and counted_s >= self._enough_s

    def _keep_weights(self) -> None:
        """A copy, digested when the trial is over: trials that go on for different times compare by it."""
        try:
            self._weights = [weight.clone() for weight in self._trained_weights()]
        except RuntimeError:
            self._weights = []  # no room: those at the end will have to do

    def _finish_throughput(self, figures: dict[str, object]) -> None:
        session.text("feed", figures)
        self._leave(max(self._taken.values()))

    def _perturb(self, optimizer: Any) -> None:
        """Each weight by a share of itself, up or down; by numbers of our own, the script's are not drawn."""
        torch = self._torch
        with torch.no_grad():
            for group in optimizer.param_groups:
                for weight in group["params"]:
                    draw = torch.Generator(device=weight.device).manual_seed(weight.numel() + self._perturbation)
                    signs = torch.empty_like(weight).uniform_(-1.0, 1.0, generator=draw).sign_()
                    weight.add_(weight * signs, alpha=self._perturbed_by)

    def _reseed(self) -> None:
        """Draw some numbers from every generator that a script's samples and layers draw theirs from."""
        torch = self._torch
        torch.rand(self._reseeds)
        if torch.cuda.is_initialized():
            torch.rand(self._reseeds, device="cuda")
        for name in ("random", "numpy.random"):
            module = sys.modules.get(name)
            for _ in range(self._reseeds if module is not None else 0):
                module.random()  # type: ignore[union-attr]

    def _leave(self, steps: int) -> None:
        try:
            steps = self._digest_at if self._weights else steps
            figures = {"losses": self._read_losses(), "weights": self._digest(), "steps": steps}
            imports = {"compiler": compiler_variables(os.environ), "imports_compiler": COMPILER in sys.modules}
            session.text("trial", {**figures, **imports})
            if self._screening is not None:
                session.text("screening", self._screening.figures())
            remedies.finish()
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

    def _trained_weights(self) -> list[Any]:
        groups = [group for optimizer in self._optimizers.values() for group in optimizer.param_groups]
        return [weight.detach() for group in groups for weight in group["params"]]

    def _digest(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        weights = self._weights or self._trained_weights()
        whole = sum(weight.numel() * weight.element_size() for weight in weights) <= _DIGESTED_BYTES
        for weight in weights:
            flat = weight.reshape(-1)
            part = flat if whole else flat[:: max(1, flat.numel() * flat.element_size() // _DIGESTED_EACH)]
            digest.update(part.contiguous().cpu().view(self._torch.uint8).numpy().tobytes())
        return digest.hexdigest()


def compiler_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """What the compiler reads when it is imported: a process that imports it sooner may miss what the script sets.

    Folders are read when they are used, and torch sets one of them itself.
    """
    settings = (name for name in environ if name.startswith(_OF_COMPILER) and not name.endswith("_DIR"))
    return {name: environ[name] for name in settings}


def begin_sandbox(environ: Mapping[str, str]) -> None:
    """Before the script's own code: what it writes goes elsewhere from here on, or the script does not run at all."""
    wanted = json.loads(environ[VARIABLE])
    if not wanted.get("scratch"):
        return
    try:
        from . import sandbox

        sandbox.begin(wanted["scratch"], wanted.get("roots", ()), _note_written)
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


def _install_on_loaders(part: Replay | LoaderThroughput) -> None:
    patches = Patches("__flatout_batches__")
    imports.after_import("torch.utils.data.dataloader", lambda module: part.install(module, patches))


def end() -> None:
    global _trial
    if _trial is not None:
        _trial.end()
        _trial = None


def _note_written(fact: dict[str, str]) -> None:
    """One file or program a line, by appending: every process of the trial notes for itself."""
    wanted = json.loads(os.environ[VARIABLE])
    line = json.dumps(fact) + "\n"
    note = os.open(wanted["written"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(note, line.encode())
    finally:
        os.close(note)

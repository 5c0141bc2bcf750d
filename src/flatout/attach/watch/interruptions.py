"""Watches what interrupts the training: checkpoints, logging, garbage collections, evaluations and torch's compiler."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from functools import partial
from threading import get_ident
from typing import Any

from ..context import Context, Watcher
from ..imports import after_import
from ..patching import guard
from ..tracer import ENTER_CHECKPOINT, ENTER_GC, ENTER_LOGGING, EVAL_CALLED, LEAVE, TRAIN_CALLED, clock
from ..wire import CHECKPOINT, LOGGING

_SUMMARY_WRITER = (
    "add_scalar", "add_scalars", "add_image", "add_images", "add_image_with_boxes", "add_figure", "add_histogram",
    "add_video", "add_audio", "add_text", "add_graph", "add_embedding", "add_pr_curve", "add_mesh", "add_hparams",
    "flush",
)  # fmt: skip
# module → (class in it or None, names, phase)
_WATCHED: dict[str, tuple[str | None, tuple[str, ...], int]] = {
    "torch.distributed.checkpoint": (None, ("save", "async_save"), CHECKPOINT),
    "safetensors.torch": (None, ("save_file", "save_model"), CHECKPOINT),
    "torch.utils.tensorboard.writer": ("SummaryWriter", _SUMMARY_WRITER, LOGGING),
    "tensorboardX.writer": ("SummaryWriter", _SUMMARY_WRITER, LOGGING),
    "wandb.sdk.wandb_run": ("Run", ("log",), LOGGING),
    "matplotlib.figure": ("Figure", ("savefig",), LOGGING),
    "PIL.Image": ("Image", ("save",), LOGGING),
    "cv2": (None, ("imwrite",), LOGGING),
    "imageio.v2": (None, ("imwrite", "imsave", "mimsave"), LOGGING),
    "imageio.v3": (None, ("imwrite",), LOGGING),
    "torchvision.utils": (None, ("save_image",), LOGGING),
    "tqdm.std": ("tqdm", ("refresh",), LOGGING),
    "logging": ("Logger", ("handle",), LOGGING),
}


class OutputWatch(Watcher):
    """Checkpoints, and what the script logs (scalars, images, figures, progress)."""

    _busy = False

    def install(self) -> None:
        self._patches.replace(self._torch, "save", partial(self._make, CHECKPOINT))
        for module, (owner, names, phase) in _WATCHED.items():
            after_import(module, partial(self._watch, owner, names, partial(self._make, phase)))

    def _watch(self, owner: str | None, names: tuple[str, ...], make: Callable[[Any], Any], module: Any) -> None:
        for name in names:
            self._patches.replace(getattr(module, owner) if owner else module, name, make)

    def _make(self, phase: int, original: Any) -> Any:
        tracer = self._tracer
        op, enter = ("checkpoint", ENTER_CHECKPOINT) if phase == CHECKPOINT else ("logging", ENTER_LOGGING)

        def call(*args: Any, **kwargs: Any) -> Any:
            # A logger's call within another's, or a checkpoint's own, is part of that one.
            if tracer.owner != get_ident() or self._busy:
                return original(*args, **kwargs)
            self._busy = True
            begun = clock()
            tracer.log(enter)
            tracer.at(begun)
            try:
                return original(*args, **kwargs)
            finally:
                self._busy = False
                self._left(begun, phase, op, sys._getframe(1))

        return call

    def _left(self, begun: float, phase: int, op: str, frame: Any) -> None:
        try:
            now = clock()
            self._tracer.log(LEAVE)
            self._tracer.at(now)
            site = self._sites.at(op, frame)
            site.add(now - begun)
            if phase == CHECKPOINT:
                self._context.writer.span(phase, begun, now, site.number)
            self._tracer.relieve()
        except Exception as error:
            self._trouble(error)


class CollectorWatch(Watcher):
    def install(self) -> None:
        if self._call not in gc.callbacks:
            gc.callbacks.append(self._call)

    def at_uninstall(self) -> None:
        if self._call in gc.callbacks:
            gc.callbacks.remove(self._call)

    def _call(self, phase: str, info: dict[str, Any]) -> None:
        tracer = self._tracer
        if tracer.owner == get_ident():
            tracer.log(ENTER_GC if phase == "start" else LEAVE)
            tracer.at(clock())


class TrainModeWatch(Watcher):
    """Sees modules put into eval mode and back into training mode.

    `Module.train` calls itself for every submodule, so a patch of it would be paid hundreds of times by a script that
    calls it in each step. It is therefore replaced only from a call of `eval` on, for one call.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._class = context.torch.nn.Module
        self._original_train = self._class.train

    def install(self) -> None:
        self._patches.replace(self._class, "eval", self._make_eval)

    def at_uninstall(self) -> None:
        """Put back `train`, of which a replacement is in place now and then."""
        if getattr(self._class.__dict__.get("train"), "__flatout__", False):
            self._class.train = self._original_train

    def _make_eval(self, original: Any) -> Any:
        tracer, compiling, trouble = self._tracer, self._compiling, self._trouble

        def eval(module: Any) -> Any:
            if compiling() or tracer.owner != get_ident():
                return original(module)
            tracer.wake()
            tracer.log(EVAL_CALLED)
            tracer.at(clock())
            result = original(module)
            guard(self._expect_train, trouble)
            return result

        return eval

    def _expect_train(self) -> None:
        # Somebody else's patch is left alone: then evaluations without a loader are not told apart.
        if self._class.__dict__.get("train") is not self._original_train:
            return
        original, tracer, trouble = self._original_train, self._tracer, self._trouble

        def train(module: Any, mode: bool = True) -> Any:
            guard(self.at_uninstall, trouble)
            if mode and tracer.owner == get_ident():
                tracer.log(TRAIN_CALLED)
                tracer.at(clock())
            return original(module, mode)

        train.__flatout__ = True  # type: ignore[attr-defined]
        self._class.train = train


# Torch's compiler: in which steps it was at work, and for how long.


# A script that compiles all the time is understood by then.
_MOST_TOLD = 1000


def _compiler(name: str, otherwise: Any) -> Any:
    """What the compiler has under this name. Looked up, never imported: torch._dynamo costs seconds."""
    return getattr(sys.modules.get("torch._dynamo.utils"), name, otherwise)


def count_compiled(name: str) -> int:
    return sum(_compiler("counters", {}).get(name, {}).values())


def is_compiler_used() -> bool:
    counters = _compiler("counters", {})
    return bool(counters.get("frames") or counters.get("stats"))


def compile_seconds() -> float | None:
    """Seconds spent compiling so far, as the compiler itself counts them; None where it is not there."""
    spent = _compiler("calculate_time_spent", None)
    try:
        return None if spent is None else round(float(spent().get("total_wall_time", 0.0)), 4)
    except Exception:  # a private function of torch: whatever becomes of it, the run goes on
        return None


class CompilerWatch(Watcher):
    """Asks the compiler for its own count whenever steps are read: a step that compiles is long, and read by itself."""

    _seconds = 0.0
    _told = 0
    _read = -1  # the index of the last step that was read before

    def at_begin(self) -> None:
        """What was compiled before the training is no part of a step."""
        self._seconds, self._told, self._read = compile_seconds() or 0.0, 0, -1
        if self._seconds:
            self._output().text("compile", {"after": -1, "index": -1, "seconds": 0.0})

    def at_step_end(self, codes: Sequence[int], index: int, now: float) -> bool:
        seconds = compile_seconds()
        if seconds is not None and seconds > self._seconds and self._told < _MOST_TOLD:
            taken_s = round(seconds - self._seconds, 4)
            self._output().text("compile", {"after": self._read, "index": index, "seconds": taken_s})
            self._seconds = seconds
            self._told += 1
        self._read = index
        return False

"""Watches what a script writes: checkpoints, and what it logs (scalars, images, figures, progress)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Any

from .imports import after_import
from .patching import Patches
from .sites import Sites
from .steps import StepWriter
from .tracer import ENTER_CHECKPOINT, ENTER_LOGGING, LEAVE, Tracer, clock
from .wire import CHECKPOINT, LOGGING

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


class OutputWatch:
    def __init__(self, tracer: Tracer, writer: StepWriter, sites: Sites, trouble: Callable[[Exception], None]) -> None:
        self._tracer = tracer
        self._writer = writer
        self._sites = sites
        self._trouble = trouble
        self._busy = False

    def install(self, torch: Any, patches: Patches) -> None:
        patches.replace(torch, "save", partial(self._make, CHECKPOINT))
        for module, (owner, names, phase) in _WATCHED.items():
            after_import(module, partial(self._watch, patches, owner, names, partial(self._make, phase)))

    def _watch(
        self, patches: Patches, owner: str | None, names: tuple[str, ...], make: Callable[[Any], Any], loaded: Any
    ) -> None:
        for name in names:
            patches.replace(getattr(loaded, owner) if owner else loaded, name, make)

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
                self._writer.span(phase, begun, now, site.number)
            self._tracer.relieve()
        except Exception as error:
            self._trouble(error)

"""Watches what a script writes: checkpoints, and what it logs (scalars, images, figures, progress)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

from .imports import after_import
from .patching import Patches
from .sites import Sites
from .steps import StepWriter
from .tracer import Tracer
from .wire import CHECKPOINT, LOGGING

_SUMMARY_WRITER = (
    "add_scalar", "add_scalars", "add_image", "add_images", "add_image_with_boxes", "add_figure", "add_histogram",
    "add_video", "add_audio", "add_text", "add_graph", "add_embedding", "add_pr_curve", "add_mesh", "add_hparams", "flush",
)  # fmt: skip
# module → (class in it or None, names, phase)
_WATCHED: dict[str, tuple[str | None, tuple[str, ...], int]] = {
    "torch": (None, ("save",), CHECKPOINT),
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
    def __init__(
        self, tracer: Tracer, writer: StepWriter, sites: Sites, trouble: Callable[[Exception], None]
    ) -> None:
        self._tracer = tracer
        self._writer = writer
        self._sites = sites
        self._trouble = trouble

    def install(self, patches: Patches) -> None:
        for module, (owner, names, phase) in _WATCHED.items():

            def watch(
                loaded: Any, owner: str | None = owner, names: tuple[str, ...] = names, phase: int = phase
            ) -> None:
                for name in names:
                    patches.replace(
                        getattr(loaded, owner) if owner else loaded,
                        name,
                        lambda original, phase=phase: self._make(original, phase),
                    )

            after_import(module, watch)

    def _make(self, original: Any, phase: int) -> Any:
        tracer = self._tracer
        op = "checkpoint" if phase == CHECKPOINT else "logging"

        def call(*args: Any, **kwargs: Any) -> Any:
            if tracer.owner != get_ident() or not tracer.on or tracer.cur in (phase, CHECKPOINT):
                return original(*args, **kwargs)
            before = self._enter(phase)
            try:
                return original(*args, **kwargs)
            finally:
                self._left(before, phase, op, sys._getframe(1))

        return call

    def _enter(self, phase: int) -> tuple[int, int]:
        try:
            return self._tracer.enter(phase), self._tracer.last
        except Exception as error:
            self._trouble(error)
            return self._tracer.cur, self._tracer.last

    def _left(self, before: tuple[int, int], phase: int, op: str, frame: Any) -> None:
        try:
            now = self._tracer.leave(before[0])
            site = self._sites.at(op, frame)
            site.add(now - before[1])
            if phase == CHECKPOINT:
                self._writer.span(phase, before[1], now, site.number)
        except Exception as error:
            self._trouble(error)

"""TensorBoard, where it is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from torch import Tensor


class Writer(Protocol):
    """The part of a SummaryWriter that is used."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...

    def add_image(self, tag: str, img_tensor: Tensor, global_step: int) -> None: ...

    def close(self) -> None: ...


class _NoWriter:
    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...

    def add_image(self, tag: str, img_tensor: Tensor, global_step: int) -> None: ...

    def close(self) -> None: ...


def summary_writer(folder: Path) -> Writer:
    """A TensorBoard writer, or one that does nothing."""
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError:
        print("TensorBoard is not installed: progress is not logged")
        return _NoWriter()
    writer: Writer = SummaryWriter(str(folder))
    return writer

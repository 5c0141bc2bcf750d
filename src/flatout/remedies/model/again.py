"""For calls that are made a second time: the same arguments, precision and random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .nesting import with_tensors


def filled(torch: Any, arguments: Any, tensors: Iterable[Any]) -> Any:
    """`arguments` with these tensors in the place of its own."""
    following = iter(tensors)
    return with_tensors(torch, arguments, lambda _: next(following))


def autocast_now(torch: Any, device_type: str) -> Callable[[], Any]:
    """A context as it is now, without its cache of casts."""
    enabled, dtype = torch.is_autocast_enabled(device_type), torch.get_autocast_dtype(device_type)
    return lambda: torch.autocast(device_type, dtype=dtype, enabled=enabled, cache_enabled=False)


class Modes:
    """What of a module is in training and what in evaluation, for a second pass that may come after a change of it."""

    def __init__(self, module: Any) -> None:
        self._then = [(part, part.training) for part in module.modules()]
        self._now: list[bool] = []

    def __enter__(self) -> None:
        self._now = [part.training for part, _ in self._then]
        for part, training in self._then:
            part.training = training

    def __exit__(self, *_: object) -> None:
        for (part, _), training in zip(self._then, self._now, strict=True):
            part.training = training


class Given:
    """The tensors of a call as they were given, for a second pass that may come after they were written into.

    `keeps` holds copies as well: what a script does to its tensors after the first call, it does after every one.
    """

    def __init__(self, tensors: Iterable[Any], keeps: bool) -> None:
        self._tensors = list(tensors)
        self._versions = [one._version for one in self._tensors]
        # On the host: where this is for memory, the device's is short.
        self._kept = [one.detach().to("cpu", copy=True) for one in self._tensors] if keeps else None

    @property
    def is_changed(self) -> bool:
        return [one._version for one in self._tensors] != self._versions

    @property
    def then(self) -> list[Any] | None:
        """Copies from before the change; None where there are none."""
        if self._kept is None:
            return None
        pairs = zip(self._kept, self._tensors, strict=True)
        return [kept.to(given.device).requires_grad_(given.requires_grad) for kept, given in pairs]


class RandomNumbers:
    """Where torch's generators stand, the host's and the device's."""

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch = torch
        self._device = device
        self._host = torch.get_rng_state()
        self._on_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def restore(self) -> None:
        self._torch.set_rng_state(self._host)
        if self._on_device is not None:
            self._torch.cuda.set_rng_state(self._on_device, self._device)

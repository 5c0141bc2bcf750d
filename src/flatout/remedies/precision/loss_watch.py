"""Looks at the loss now and then, and gives a remedy up when it is no longer finite.

Never waits for the device: the answer is copied to pinned memory and read when it has arrived, steps later.
"""

from __future__ import annotations

from typing import Any

from ..site import Site

_EVERY = 50
_FIRST = 5
# One odd batch makes a loss infinite once; broken weights make it so for good.
_ENOUGH = 2


class LateAnswer:
    """One value on its way from the device to the host."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._host: Any = None
        self._arrives: Any = None

    @property
    def is_awaited(self) -> bool:
        return self._host is not None

    def send(self, value: Any) -> None:
        torch = self._torch
        if value.is_cuda:
            self._host = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
            self._host.copy_(value, non_blocking=True)
            self._arrives = torch.cuda.Event()
            self._arrives.record()
        else:
            self._host, self._arrives = value.detach().clone(), None

    def take(self) -> float | None:
        """The value, if it has arrived."""
        if self._host is None or (self._arrives is not None and not self._arrives.query()):
            return None
        value, self._host, self._arrives = float(self._host), None, None
        return value


class LossWatch:
    """Is told of every backward pass."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._answer = LateAnswer(site.torch)
        self._passes = 0
        self._bad_looks = 0

    def look(self, tensors: Any) -> None:
        self._passes += 1
        if self._answer.is_awaited:
            self._judge(self._answer.take())
        elif self._passes <= _FIRST or self._passes % _EVERY == 0 or self._bad_looks:
            self._send(tensors)

    def _send(self, tensors: Any) -> None:
        torch = self._site.torch
        loss = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors), None)
        if loss is None or loss.numel() != 1 or (loss.is_cuda and torch.cuda.is_current_stream_capturing()):
            return
        self._answer.send(torch.isfinite(loss.detach()))

    def _judge(self, finite: float | None) -> None:
        if finite is None:
            return
        self._bad_looks = 0 if finite else self._bad_looks + 1
        if self._bad_looks >= _ENOUGH:
            self._site.give_up("the loss is no longer finite; what it did to the weights stays")


def watch_loss(site: Site) -> None:
    """Look at every loss that `torch.autograd.backward` is given, which `Tensor.backward` calls too."""
    watch = LossWatch(site)

    def make(original: Any) -> Any:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if site.in_force:
                site.guarded(lambda: watch.look(tensors), lambda: None)
            return original(tensors, *args, **kwargs)

        return backward

    site.replace(site.torch.autograd, "backward", make)

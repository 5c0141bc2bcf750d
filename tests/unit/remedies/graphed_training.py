"""The same training without and with replayed calls, on tapes of the CPU."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from flatout.remedies.compute.graphed_model import GraphedCall
from flatout.remedies.model.module_calls import replace_call
from flatout.remedies.site import Site
from tests.unit.remedies.applied import reason, site_for


class Net(nn.Module):
    """Has what a recording must treat with care: running statistics and dropout."""

    def __init__(self, drop: float = 0.5) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(drop))
        self.head = nn.Linear(16, 2)
        self.scale = 1.0

    def forward(self, x: Tensor) -> Any:
        return self.head(self.body(x)) * self.scale


Train = Callable[[Any, list[Tensor]], Any]


def both(
    train: Train, make: Callable[[], nn.Module] = Net, replays: bool = True, exact: bool = True
) -> tuple[Site, GraphedCall, Any]:
    """The same training without and with it; they must not differ in anything, or only in rounding."""
    outcomes = []
    site = call = None
    for graphed in (False, True):
        torch.manual_seed(0)
        random.seed(0)
        model: Any = make()
        batches = [torch.randn(16, 8) for _ in range(14)]
        if graphed:
            site = site_for("graphs.model", True)
            call = GraphedCall(site, model, CpuTapes())
            replace_call(site, model, call)
        result = train(model, batches)
        outcomes.append((result, [one.detach().clone() for one in model.state_dict().values()], torch.get_rng_state()))
    assert site is not None and call is not None
    (plain, weights, state), (ours, our_weights, our_state) = outcomes
    assert ours == plain if exact else pytest.approx(ours, rel=1e-5) == plain
    compare = torch.equal if exact else torch.allclose
    assert all(compare(one, other) for one, other in zip(our_weights, weights, strict=True))
    assert torch.equal(our_state, state)
    assert (call.replays > 3) is replays, (site.state, reason(site), call.why_not)
    return site, call, model


# Tapes as a GPU has them, on the CPU: every operation is kept with the memory it wrote, and done again into it.

# Of an operation with which the host waits for a value.
_WAITS = ("_local_scalar_dense", "nonzero", "equal")


class _Recording(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(name in str(func) for name in _WAITS):
            raise RuntimeError("operation not permitted when stream is capturing")
        result = func(*args, **(kwargs or {}))
        self.operations.append((func, args, kwargs or {}, result))
        return result

    def replay(self) -> None:
        with torch.no_grad():
            for func, args, kwargs, before in self.operations:
                read = {_place(one) for one in _tensors((args, kwargs))}
                for old, new in zip(_tensors(before), _tensors(func(*args, **kwargs)), strict=True):
                    if _place(old) not in read and _place(new) != _place(old):
                        old.copy_(new)


def _tensors(value: Any) -> list[Any]:
    return [one for one in tree_leaves(value) if isinstance(one, torch.Tensor)]


def _place(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


class CpuTapes:
    """Takes the place of `CudaTapes`."""

    def __init__(self, room_bytes: int = 1 << 40) -> None:
        self.recorded = 0
        self._room_bytes = room_bytes

    @contextmanager
    def aside(self) -> Iterator[None]:
        yield

    def record(self, call: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        with _Recording() as recording:
            result = call()
        self.recorded += 1
        return result, recording.replay

    def random_state(self) -> Any:
        return bytes(torch.get_rng_state().tolist())

    def set_random_state(self, state: Any) -> None:
        torch.set_rng_state(torch.tensor(list(state), dtype=torch.uint8))

    def held_bytes(self) -> int:
        return 0 if self.recorded else 1 << 20

    def room_bytes(self) -> int:
        return self._room_bytes

    def place(self) -> object:
        return None

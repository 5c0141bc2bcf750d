"""A patched method of torch.Tensor, seen by tensors that decide by the method what to do."""

# mypy: disable-error-code="no-untyped-call,attr-defined"
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from flatout.attach.patching import Patches
from flatout.attach.watch.transfers import TransferWatch
from tests.unit.attach.contexts import make_context

_BEFORE = {torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.item}
_NAMES = ("to", "cpu", "cuda", "item", "tolist", "nonzero", "copy_", "__bool__", "__int__", "__float__", "__index__")


@pytest.fixture(autouse=True)
def patched() -> Iterator[None]:
    context = make_context()
    TransferWatch(context).install()
    yield
    context.patches.restore()


class Seen(torch.Tensor):
    """Notes by which functions it was asked."""

    asked: ClassVar[list[Any]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.asked.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_lazy_module_can_be_moved() -> None:
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(3)).to("cpu").cpu().double()

    assert model(torch.ones(2, 4, dtype=torch.double)).shape == (2, 3)
    model[1].load_state_dict(model[1].state_dict())


def test_a_subclass_finds_the_method_in_tables_from_before_and_after() -> None:
    after = {torch.Tensor.to: "to"}
    Seen.asked.clear()

    moved = torch.ones(1).as_subclass(Seen).to(torch.double)

    (asked,) = Seen.asked
    assert type(moved) is Seen
    assert asked in _BEFORE
    assert asked in list(_BEFORE)
    assert after[asked] == "to"
    assert asked is torch.Tensor.to
    assert asked != torch.Tensor.cpu


@pytest.mark.parametrize("name", _NAMES)
def test_it_looks_like_the_method(name: str) -> None:
    ours = getattr(torch.Tensor, name)

    assert ours.__name__ == name
    assert ours.__flatout__
    assert ours == getattr(torch._C.TensorBase, name)


def test_values_and_errors_are_the_methods_own() -> None:
    one, many = torch.ones(()), torch.ones(3)

    assert (one.item(), bool(one), int(one), [5, 6][one.long()], torch.Tensor.tolist(many)) == (
        1.0,
        True,
        1,
        6,
        [1.0] * 3,
    )
    assert many.copy_(one).sum().item() == 3
    with pytest.raises(RuntimeError, match="a Tensor with 3 elements"):
        many.item()


def test_a_second_patch_over_ours_is_the_method_too() -> None:
    theirs, called = Patches("__theirs__"), []

    def make(original: Any) -> Any:
        def to(*args: Any, **kwargs: Any) -> Any:
            called.append(args)
            return original(*args, **kwargs)

        return to

    theirs.replace(torch.Tensor, "to", make)

    assert torch.ones(2).to(torch.double).dtype == torch.double
    assert len(called) == 1
    assert torch.Tensor.to in _BEFORE
    assert nn.LazyLinear(2).to("cpu")(torch.ones(1, 2)).shape == (1, 2)
    theirs.restore()
    assert torch.Tensor.to.__flatout__


def test_a_mode_around_the_call_is_asked() -> None:
    class Mode(torch.overrides.TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.asked: list[Any] = []

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.asked.append(func)
            return func(*args, **(kwargs or {}))

    with Mode() as mode:
        assert torch.ones(2).tolist() == [1, 1]

    assert torch.Tensor.tolist in mode.asked


@pytest.mark.parametrize(
    "form",
    [
        lambda x: x.to(torch.double) + 1,
        lambda x: x.cpu() + 1,
        lambda x: torch.zeros(4).copy_(x) + 1,
        lambda x: torch.Tensor.to(x, torch.double) + 1,
        lambda x: x * x[0].item(),
        lambda x: x * float(x[0]),
    ],
)
def test_what_is_compiled_has_no_break_at_it(form: Any) -> None:
    torch._dynamo.reset()

    torch.compile(form, backend="eager", fullgraph=True)(torch.ones(4))

"""What is within a module, and what is in a hook that the script has put on one."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from flatout.attach.watch.natures import ModuleFrames, is_on_gradients

CALLS = ModuleFrames(nn.Module._call_impl.__code__)
Seen = dict[str, bool]


class Model(nn.Module):
    def __init__(self, seen: Seen) -> None:
        super().__init__()
        self.seen = seen

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen["forward"] = CALLS.is_within(sys._getframe())
        return x


def note(seen: Seen, name: str, *_: Any) -> None:
    seen[name] = CALLS.is_within(sys._getframe())


def test_outside_of_modules() -> None:
    assert not CALLS.is_within(sys._getframe())


def test_without_hooks() -> None:
    seen: Seen = {}
    Model(seen)(torch.ones(1))

    assert seen == {"forward": True}


def test_hooks_are_the_scripts_own() -> None:
    seen: Seen = {}
    model = Model(seen)
    model.register_forward_pre_hook(functools.partial(note, seen, "before"))
    model.register_forward_hook(lambda *given: note(seen, "after"))
    model.register_full_backward_hook(functools.partial(note, seen, "backward"))
    model(torch.ones(1))

    assert seen == {"before": False, "forward": True, "after": False}


def test_a_module_that_a_hook_calls_is_one() -> None:
    seen: Seen = {}
    inner, outer = Model(seen), nn.Identity()

    def judge(module: nn.Module, given: Any, result: torch.Tensor) -> None:
        inner(result)

    outer.register_forward_hook(judge)
    outer(torch.ones(1))

    assert seen == {"forward": True}


def test_a_hook_within_the_forward_of_another_module_is_still_one() -> None:
    seen: Seen = {}
    inner = nn.Identity()
    inner.register_forward_hook(functools.partial(note, seen, "hook"))
    nn.Sequential(inner, Model(seen))(torch.ones(1))

    assert seen == {"hook": False, "forward": True}


def _unlike_torch(call: Callable[[], None]) -> None:
    call()


def test_another_torch_does_not_tell_hooks_apart() -> None:
    seen: Seen = {}
    calls = ModuleFrames(_unlike_torch.__code__)
    _unlike_torch(lambda: seen.update(within=calls.is_within(sys._getframe())))

    assert seen == {"within": True}


def test_functions_of_torch_on_gradients() -> None:
    seen: list[bool] = []

    class Asked(torch.Tensor):
        """Tells from within what torch does with it."""

        @classmethod
        def __torch_function__(cls, *given: Any, **named: Any) -> Any:
            # One frame is this one, and of the user's.
            seen.append(is_on_gradients(sys._getframe(1)))
            return super().__torch_function__(*given, **named)

    weight = torch.ones(3, requires_grad=True)
    weight.grad = torch.ones(3).as_subclass(Asked)
    seen.clear()
    nn.utils.clip_grad_norm_([weight], 1.0, foreach=False)
    assert seen and all(seen)

    seen.clear()
    torch.ones(3).as_subclass(Asked).sum()
    assert seen == [False]

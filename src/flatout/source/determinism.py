"""Switches that keep torch from its fastest kernels, as a training on a GPU sets them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from flatout.source.code import Code
from flatout.source.module import Function, Module
from flatout.source.nodes import argument, dotted
from flatout.source.reaching import is_reached
from flatout.source.values import Value
from flatout.source.whole import is_test, saying

_SWITCHES: tuple[tuple[Literal["deterministic", "enabled", "benchmark"], bool], ...] = (
    ("deterministic", True),
    ("enabled", False),
    ("benchmark", False),
)
_ALGORITHMS = ("use_deterministic_algorithms", "set_deterministic")
# cudnn's search is for convolutions; libraries of such models say nothing of them in the script.
_OF_CONVOLUTIONS = (
    "Conv1d", "Conv2d", "Conv3d", "torchvision", "timm", "diffusers", "segmentation_models", "monai", "resnet", "unet",
    "cnn", "mmcv", "mmdet", "detectron",
)  # fmt: skip
_CONVOLUTIONS = saying(rf"\b({'|'.join(_OF_CONVOLUTIONS)})", *_OF_CONVOLUTIONS)


@dataclass(frozen=True, slots=True)
class Switch:
    """`given` is the expression that is set, `value` what it is known to be."""

    what: Literal["deterministic", "algorithms", "enabled", "benchmark"]
    function: Function
    node: ast.AST
    given: ast.expr
    value: Value
    has_convolutions: bool
    # benchmark = True beside deterministic = True: the fastest of the deterministic ones is searched for.
    is_searched: bool = False


def switches_in(code: Code) -> Iterator[tuple[Switch, ...]]:
    """Those of one function together, the weightiest first."""
    concerned: dict[int, tuple[Module, bool]] = {}
    for whole in code.wholes:
        if whole.is_on_gpu:
            convolves = whole.says(_CONVOLUTIONS)
            for one in whole.modules:
                if is_test(one):
                    continue
                concerned[id(one)] = (one, convolves or concerned.get(id(one), (one, False))[1])
    for module, convolves in concerned.values():
        if "cudnn" not in module.text and not any(one in module.text for one in _ALGORITHMS):
            continue
        for function in module.functions:
            found = [
                one
                for one in (*_assigned(function, convolves, code), *_called(function, convolves, code))
                if is_reached(one.node, function, code.project, code.values)
            ]
            if found:
                order = ("algorithms", "enabled", "deterministic", "benchmark")
                yield tuple(sorted(found, key=lambda one: order.index(one.what)))


def _assigned(function: Function, convolves: bool, code: Code) -> Iterator[Switch]:
    for name, values in function.bindings.items():
        owner, _, attribute = name.rpartition(".")
        if owner.split(".")[-1] != "cudnn":
            continue
        for what, guilty in _SWITCHES:
            if what != attribute or (what == "benchmark" and not convolves):
                continue
            for given in values:
                value = code.values.of(given, function)
                if value is not None and isinstance(value.value, bool | int) and bool(value.value) is guilty:
                    yield Switch(what, function, given, given, value, convolves, _is_searched(owner, function, code))


def _is_searched(owner: str, function: Function, code: Code) -> bool:
    known = [code.values.of(one, function) for one in function.bindings.get(f"{owner}.benchmark", ())]
    return any(one is not None and one.value is True for one in known)


def _called(function: Function, convolves: bool, code: Code) -> Iterator[Switch]:
    for call in function.calls:
        name = dotted(call.func).split(".")[-1]
        given = argument(call, "mode" if name == _ALGORITHMS[0] else "d", 0) if name in _ALGORITHMS else None
        value = code.values.of(given, function) if given is not None else None
        if given is not None and value is not None and value.value is True:
            yield Switch("algorithms", function, call, given, value, convolves)

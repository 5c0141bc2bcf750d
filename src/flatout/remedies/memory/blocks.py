"""The repeated blocks of a model: children of one class that stand in a list or a sequence."""

from __future__ import annotations

from collections import Counter
from typing import Any

_FEWEST = 2


def repeated_blocks(torch: Any, model: Any) -> dict[str, Any]:
    """{name: block}, the outermost ones only. A single layer is no block: there is nothing in it to run again."""
    found: dict[str, Any] = {}
    containers = (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)
    for name, container in model.named_modules():
        if not isinstance(container, containers) or any(_is_within(name, block) for block in found):
            continue
        children = {child: part for child, part in container.named_children() if _is_block(part)}
        counts = Counter(type(part) for part in children.values())
        for child, part in children.items():
            if counts[type(part)] >= _FEWEST:
                found[f"{name}.{child}" if name else child] = part
    return found


def _is_block(part: Any) -> bool:
    return next(part.children(), None) is not None and next(part.parameters(), None) is not None


def _is_within(name: str, block: str) -> bool:
    return name == block or name.startswith(f"{block}.")

"""How many samples a batch holds, read off the batch itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

_MOST_TENSORS = 32
_DEEPEST = 4
# Objects that say it themselves: graph batches, tensor dictionaries.
_OWN_WORD = ("num_graphs", "batch_size")
Path = tuple[tuple[str, Any], ...]


def size_of(batch: Any) -> int:
    """Number of samples, 0 if it cannot be told."""
    return look(batch)[1]


def look(batch: Any, asked: int = 0) -> tuple[Path, int]:
    """The way to the telling part of a batch (empty: not worth remembering), and the number of samples.

    `asked` is how many samples the loader takes for a batch, 0 if that is not known.
    """
    if asked and _is_list_of_samples(batch, asked):
        return (), asked
    path, size = _search(batch) or ((), _length(batch))
    # More than the loader asked for: it is a dimension of the sample itself, which its collate function handed on bare.
    return ((), asked) if 0 < asked < size else (path, size)


def _is_list_of_samples(batch: Any, asked: int) -> bool:
    if not isinstance(batch, list | tuple) or len(batch) < asked:
        return False
    if len(batch) > max(asked, _MOST_TENSORS):
        return True  # parts of samples in one long list: nobody has so many columns
    if len(batch) != asked:
        return False
    kinds = {type(part) for part in batch}
    return len(kinds) == 1 and not hasattr(batch[0], "dtype") and not isinstance(batch[0], list | tuple)


def follow(path: Path, batch: Any) -> int:
    """The number of samples, by the way found in an earlier batch. Raises where this one is built otherwise."""
    value = batch
    for how, key in path:
        value = value[key] if how == "item" else getattr(value, key)
    return int(value if path[-1][1] in _OWN_WORD and isinstance(value, int) else value.shape[0])


def _search(batch: Any) -> tuple[Path, int] | None:
    for name in _OWN_WORD:
        if isinstance(getattr(batch, name, None), int):
            return (("attribute", name),), getattr(batch, name)
    sizes: list[tuple[Path, int]] = []
    for path, size in _leading_sizes(batch, (), 0):
        sizes.append((path, size))
        if len(sizes) == _MOST_TENSORS:
            break
    if not sizes:
        return None
    # Most tensors of a batch agree on the leading dimension; odd ones (an index, a camera matrix) are outvoted.
    winner, _ = Counter(size for _, size in sizes).most_common(1)[0]
    return next((path, size) for path, size in sizes if size == winner)


def tensors(batch: Any) -> list[Any]:
    """The tensors and arrays of a batch, or the first of very many."""
    return [value for _, value in islice(_arrays(batch, (), 0), _MOST_TENSORS)]


def tensor_bytes(batch: Any) -> int:
    """Of its tensors on the host."""
    held = [one for one in tensors(batch) if hasattr(one, "element_size") and one.device.type == "cpu"]
    return sum(one.numel() * one.element_size() for one in held)


def _leading_sizes(value: Any, path: Path, depth: int) -> Iterator[tuple[Path, int]]:
    return ((way, int(array.shape[0])) for way, array in _arrays(value, path, depth) if len(array.shape) > 0)


def _arrays(value: Any, path: Path, depth: int) -> Iterator[tuple[Path, Any]]:
    if getattr(value, "shape", None) is not None and hasattr(value, "dtype"):
        yield path, value
        return
    if depth == _DEEPEST or isinstance(value, str | bytes | int | float) or value is None:
        return
    if isinstance(value, Mapping):
        parts = [("item", key, part) for key, part in value.items()]
    elif isinstance(value, list | tuple):
        parts = [("item", i, part) for i, part in enumerate(value)]
    else:
        parts = [("attribute", key, part) for key, part in _attributes(value)]
    for how, key, part in parts[:_MOST_TENSORS]:
        yield from _arrays(part, (*path, (how, key)), depth + 1)


def _attributes(value: Any) -> list[tuple[str, Any]]:
    names = list(getattr(value, "__dict__", {})) or [
        name for kind in type(value).__mro__ for name in _as_names(getattr(kind, "__slots__", ()))
    ]
    return [(name, getattr(value, name)) for name in names if hasattr(value, name)]


def _as_names(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _length(batch: Any) -> int:
    """No tensor anywhere: a list of samples, or columns of plain values."""
    if isinstance(batch, Mapping):
        batch = next(iter(batch.values()), ())
    if isinstance(batch, list | tuple):
        inner = batch[0] if batch and isinstance(batch[0], list | tuple) else batch
        return len(inner)
    return 0

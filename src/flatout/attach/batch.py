"""What a batch holds: the number of samples, bytes of its tensors, and padding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from .recorder import Output

_MOST_TENSORS = 32
_DEEPEST = 4
# Objects that say it themselves: graph batches, tensor dictionaries.
_OWN_WORD = ("num_graphs", "batch_size")
Path = tuple[tuple[str, Any], ...]


def count_samples(batch: Any) -> int:
    """Number of samples, 0 if it cannot be told."""
    return find_samples(batch)[1]


def find_samples(batch: Any, asked: int = 0) -> tuple[Path, int]:
    """Where in a batch its size can be read (empty: not worth remembering), and the number of samples.

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


def count_at(path: Path, batch: Any) -> int:
    """The number of samples, read where an earlier batch had it. Raises where this one is built differently."""
    value = batch
    for how, key in path:
        value = value[key] if how == "item" else getattr(value, key)
    return int(value if path[-1][1] in _OWN_WORD and isinstance(value, int) else value.shape[0])


def count_again(path: Path, batch: Any, asked: int) -> tuple[Path, int]:
    """The number of samples, read where an earlier batch had it or else searched for; 0 if it cannot be told."""
    try:
        return path, count_at(path, batch)
    except Exception:
        pass  # the first batch, or one that is built differently
    try:
        return find_samples(batch, asked)
    except Exception:
        return (), 0  # a batch whose attributes raise when looked at


def _search(batch: Any) -> tuple[Path, int] | None:
    for name in _OWN_WORD:
        if isinstance(getattr(batch, name, None), int):
            return (("attribute", name),), getattr(batch, name)
    shaped = ((path, int(array.shape[0])) for path, array in _arrays(batch, (), 0) if len(array.shape) > 0)
    sizes = list(islice(shaped, _MOST_TENSORS))
    if not sizes:
        return None
    # Most tensors of a batch agree on the leading dimension; odd ones (an index, a camera matrix) are outvoted.
    winner, _ = Counter(size for _, size in sizes).most_common(1)[0]
    return next((path, size) for path, size in sizes if size == winner)


def tensors_in(batch: Any) -> list[Any]:
    """The tensors and arrays of a batch, or the first of very many."""
    return [value for _, value in islice(_arrays(batch, (), 0), _MOST_TENSORS)]


def tensor_bytes(batch: Any) -> int:
    """Bytes of a batch's tensors that are on the host."""
    held = [t for t in tensors_in(batch) if hasattr(t, "element_size") and t.device.type == "cpu"]
    return sum(tensor.numel() * tensor.element_size() for tensor in held)


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
        parts = [("attribute", key, part) for key, part in attributes_of(value)]
    for how, key, part in parts[:_MOST_TENSORS]:
        yield from _arrays(part, (*path, (how, key)), depth + 1)


def attributes_of(value: Any) -> list[tuple[str, Any]]:
    names = list(getattr(value, "__dict__", ()))
    for kind in type(value).__mro__ if not names else ():
        slots = getattr(kind, "__slots__", ())
        names += (slots,) if isinstance(slots, str) else slots
    return [(name, getattr(value, name)) for name in names if hasattr(value, name)]


def _length(batch: Any) -> int:
    """No tensor anywhere: a list of samples, or columns of plain values."""
    if isinstance(batch, Mapping):
        batch = next(iter(batch.values()), ())
    if isinstance(batch, list | tuple):
        inner = batch[0] if batch and isinstance(batch[0], list | tuple) else batch
        return len(inner)
    return 0


# How much of a batch of sequences is padding, by a look at a batch now and then.
#
# A batch is looked at only in a step whose autograd graph is looked at too: the graph tells whether the model computes
# at the padded length, or cuts the padding off first.

_MOST_ROWS, _MOST_VALUES = 64, 1 << 14
_SHORTEST, _LONGEST = 16, 1 << 16
# How much of the text itself may equal the padding value, in addition to one per row (an end mark, say).
_IN_TEXT = 0.02
# A row with one value throughout tells nothing; with more such rows than this, neither does the tensor.
_EMPTY_ROWS = 0.25
# Batches looked at in a row without a backward after them (a pass for statistics, say) before looking stops.
_MOST_UNUSED_LOOKS = 8
_IDS = ("int64", "int32", "int16", "uint8")
_MASKS = ("bool", *_IDS, "float32")


class PaddingInspector:
    """The batch looked at last, until the graph of its step has been seen. It holds no tensor."""

    def __init__(self, torch: Any, output: Callable[[], Output]) -> None:
        self._torch = torch
        self._output = output
        self._pending: dict[str, Any] | None = None
        self._in_vain = 0

    def look(self, loader: int, batch: Any) -> None:
        """Called with a batch as it comes from the loader. Never raises, whatever a batch is made of."""
        self._pending = None
        self._in_vain += 1
        if self._in_vain > _MOST_UNUSED_LOOKS:
            return
        try:
            found = find_padding(self._torch, tensors_in(batch))
            if found is not None:
                self._pending = {"loader": loader, **found}
        except Exception:
            pass  # a batch whose parts raise when looked at

    def note_graph(self, shapes: Iterable[tuple[int, ...]]) -> None:
        """The shapes of what the step computed: write down what was found in its batch."""
        pending, self._pending = self._pending, None
        self._in_vain = 0
        if pending is not None:
            computed = any(_has_length(shape, pending["rows"], pending["length"]) for shape in shapes)
            self._output().text("padding", {**pending, "computed": computed})


def _has_length(shape: tuple[int, ...], rows: int, length: int) -> bool:
    # A model that predicts the next token leaves the last one out.
    long = (length, length - 1)
    if len(shape) > 2 and (shape[0] in long or shape[1] in long):
        return True
    return len(shape) > 1 and shape[0] in (rows * long[0], rows * long[1])


def find_padding(torch: Any, parts: Iterable[Any]) -> dict[str, Any] | None:
    """The lengths of the sequences in a batch, without their padding; None where it is no batch of padded sequences."""
    plain = [part for part in parts if type(part) is torch.Tensor and part.is_cpu]
    best: dict[str, Any] | None = None
    for part in plain:
        if part.dim() != 2 or part.shape[0] < 2 or not _SHORTEST <= part.shape[1] <= _LONGEST:
            continue
        rows, length = int(part.shape[0]), int(part.shape[1])
        others = sum(other.numel() for other in plain if tuple(other.shape[:2]) != (rows, length))
        if others > part.numel():
            continue  # pictures with captions: the sequences are the lesser part
        found = _lengths(torch, part)
        if found is None:
            continue
        padding = {"kind": found[0], "rows": rows, "length": length, "value": found[1], "lengths": found[2]}
        best = padding if best is None else max(best, padding, key=_weight)
    return best


def _weight(found: dict[str, Any]) -> tuple[bool, int]:
    """A mask is sure; among others the longest counts."""
    return found["kind"] == "mask", found["length"]


def _lengths(torch: Any, part: Any) -> tuple[str, int, list[int]] | None:
    name = str(part.dtype).removeprefix("torch.")
    if name not in _MASKS:
        return None
    # No more than some ten microseconds of work.
    most = max(2, min(_MOST_ROWS, _MOST_VALUES // part.shape[1]))
    part = part.detach()[:: max(1, -(-part.shape[0] // most))]
    if float(part.min()) >= 0 and float(part.max()) <= 1:
        lengths = _of_mask(torch, part)
        return None if lengths is None else ("mask", 0, lengths)
    if name not in _IDS:
        return None
    found = _of_ids(torch, part) or _of_ids(torch, part.flip(1))
    return None if found is None else ("ids", *found)


def _of_mask(torch: Any, part: Any) -> list[int] | None:
    """Ones and then zeros in every row: how many ones. The other way round it could be either kind of mask."""
    ones = part.to(torch.int32)
    falls = bool((ones[:, 1:] <= ones[:, :-1]).all())
    lengths: list[int] = ones.sum(1).tolist()
    return lengths if falls and min(lengths) > 0 else None


def _of_ids(torch: Any, part: Any) -> tuple[int, list[int]] | None:
    """Rows that end in a run of one and the same value, which the rest of them hardly has."""
    length = part.shape[1]
    differs = part != part[:, -1:]
    mixed: list[bool] = differs.any(1).tolist()
    if mixed.count(False) > _EMPTY_ROWS * len(mixed):
        return None
    runs: list[int] = differs.flip(1).to(torch.uint8).argmax(1).tolist()
    ends: list[int] = part[:, -1].tolist()
    rows = [(end, run) for end, run, is_mixed in zip(ends, runs, mixed, strict=True) if is_mixed]
    common = Counter(end for end, run in rows if run > 1).most_common(1)
    if not common:
        return None
    value = common[0][0]
    lengths = [length - run if end == value else length for end, run in rows]
    empty = length * mixed.count(False)
    in_text = int((part == value).sum()) - sum(length - text_length for text_length in lengths) - empty
    if in_text > _IN_TEXT * sum(lengths) + len(lengths):
        return None
    return value, lengths

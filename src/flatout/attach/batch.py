"""What a batch holds: the number of samples, bytes of its tensors, and padding."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from time import perf_counter
from typing import Any

from .recorder import Output

_MOST_TENSORS = 32
_DEEPEST = 4
# Objects that say it themselves: graph batches, tensor dictionaries.
_OWN_WORD = ("num_graphs", "batch_size")
Path = tuple[tuple[str, Any], ...]
_Lengths = tuple[str, float, list[int]]  # how they are known, the value that pads, and they themselves


def count_samples(batch: Any) -> int:
    """Number of samples, 0 if it cannot be told."""
    return find_samples(batch)[1]


def find_samples(batch: Any, asked: int = 0) -> tuple[Path, int]:
    """Where in a batch its size can be read (empty: not worth remembering), and the number of samples.

    `asked` is how many samples the loader takes for a batch, 0 if that is not known.
    """
    if asked and (_is_list_of_samples(batch, asked) or _is_columns_of_samples(batch, asked)):
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
    if len(kinds) != 1 or hasattr(batch[0], "dtype"):
        return False
    return not isinstance(batch[0], list | tuple) or _is_mixed(batch[0])


def _is_mixed(part: Sequence[Any]) -> bool:
    """Is it one sample, a picture and its label, and not the same of several?"""
    return len({(type(each), len(getattr(each, "shape", ()))) for each in part}) > 1


def _is_columns_of_samples(batch: Any, asked: int) -> bool:
    """`zip(*samples)`: all pictures, all labels, one beside the other."""
    return (
        isinstance(batch, list | tuple)
        and len(batch) > 0
        and all(isinstance(part, list | tuple) and len(part) == asked for part in batch)
    )


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


def carried_bytes(batch: Any) -> tuple[int, int]:
    """What a batch's tensors show, and the memory behind it that a worker of torch copies to send it.

    A storage is sent as a whole, and once, however little of it a tensor shows. One that is shared is sent as it is.
    """
    shown: dict[int, int] = {}
    carried: dict[int, int] = {}
    for part in tensors_in(batch):
        # An array has no storage, and a sparse tensor several.
        if not hasattr(part, "untyped_storage") or not part.is_cpu or str(part.layout) != "torch.strided":
            continue
        storage = part.untyped_storage()
        if not storage.is_shared():
            # Not by its address: asking for that may copy what is copied lazily.
            key = storage._cdata
            carried[key] = storage.nbytes()
            shown[key] = min(carried[key], shown.get(key, 0) + part.numel() * part.element_size())
    return sum(shown.values()), sum(carried.values())


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
# Of the values of a frame, those that are looked at: fewer, but not fewer than two, where there are many frames. On one
# core, a batch of 12 x 300 x 40 without padding took 0.05 ms and one with padding 0.2 ms, one of 64 x 256 x 80 0.5 ms.
_MOST_IN_FRAME, _FEWEST_IN_FRAME = 8, 2
# Lengths that are told cost next to nothing to look at, but are written down.
_MOST_TOLD = 512
# What a model of frames divides their number by before it computes most of what it does, and the least that is left.
_STRIDES = (1, 2, 3, 4, 8)
_SHORTEST_LEFT = 8
# Where a padded batch was computed, more of them are looked at: batches of one sampler may differ much in length. At
# most so many, and for at most this part of the time since the first.
_MOST_BATCHES, _OWN_PART = 64, 0.0005


class PaddingInspector:
    """The batch looked at last, until the graph of its step has been seen. It holds no tensor."""

    def __init__(self, torch: Any, output: Callable[[], Output]) -> None:
        self._torch = torch
        self._output = output
        self._pending: dict[str, Any] | None = None
        self._in_vain = 0
        self._computed_of: int | None = None  # the loader whose padding the last graph had
        self._batches = 0
        self._begun_s, self._spent_s = 0.0, 0.0

    def look(self, loader: int, batch: Any) -> None:
        """Called with a batch as it comes from the loader. Never raises, whatever a batch is made of."""
        self._pending = None
        self._in_vain += 1
        if self._in_vain > _MOST_UNUSED_LOOKS:
            return
        begun = perf_counter()
        try:
            found = find_padding(self._torch, tensors_in(batch))
            if found is not None:
                self._pending = {"loader": loader, **found}
        except Exception:
            pass  # a batch whose parts raise when looked at
        self._begun_s = self._begun_s or begun
        self._spent_s += perf_counter() - begun

    def is_due(self) -> bool:
        """Is it time to look at another batch, whose step is taken to compute its padding as those before did?"""
        if self._computed_of is None or self._batches >= _MOST_BATCHES:
            return False
        return self._spent_s < _OWN_PART * (perf_counter() - self._begun_s)

    def look_again(self, loader: int, batch: Any) -> None:
        if loader == self._computed_of:
            self.look(loader, batch)
            self._note(computed=True)

    def note_graph(self, shapes: Iterable[tuple[int, ...]]) -> None:
        """The shapes of what the step computed: write down what was found in its batch."""
        pending = self._pending
        if pending is not None:
            computed = _is_computed(shapes, pending)
            self._computed_of = pending["loader"] if computed else None
            self._note(computed)
        self._in_vain = 0

    def _note(self, computed: bool) -> None:
        pending, self._pending = self._pending, None
        self._in_vain = 0
        if pending is not None:
            self._batches += 1
            self._output().text("padding", {**pending, "computed": computed})


def _is_computed(shapes: Iterable[tuple[int, ...]], found: Mapping[str, Any]) -> bool:
    """Did the step compute something as long as the padded rows?"""
    rows, length = found["rows"], found["length"]
    if found["kind"] in ("mask", "ids"):
        return any(_has_length(shape, rows, length) for shape in shapes)
    long = _shortened(length)
    cut = _shortened(max(found["lengths"])) - long
    return any(_has_frames(shape, rows, long, cut) for shape in shapes)


def _has_length(shape: tuple[int, ...], rows: int, length: int) -> bool:
    # A model that predicts the next token leaves the last one out.
    long = (length, length - 1)
    if len(shape) > 2 and (shape[0] in long or shape[1] in long):
        return True
    return len(shape) > 1 and shape[0] in (rows * long[0], rows * long[1])


def _shortened(length: int) -> frozenset[int]:
    """How many frames strided layers may leave of so many; the ends of a row make it one more or less."""
    strides = [stride for stride in _STRIDES if length >= _SHORTEST_LEFT * stride]
    left = [whole for stride in strides for whole in (length // stride, -(-length // stride))]
    return frozenset(whole + more for whole in left for more in (-1, 0, 1))


def _has_frames(shape: tuple[int, ...], rows: int, long: Collection[int], cut: Collection[int]) -> bool:
    """`cut` are the lengths that a model would have which cuts the padding off."""
    if len(shape) == 2:
        return shape[0] % rows == 0 and shape[0] // rows in long
    if len(shape) < 2:
        return False
    if shape[1] == rows and shape[0] in long:
        return True
    # Frames may be in any place but the first, and the width of a layer may look like their number: where something is
    # as long as the text alone, the other is taken for a width.
    return shape[0] == rows and any(size in long for size in shape[1:]) and not any(size in cut for size in shape[1:])


def find_padding(torch: Any, parts: Iterable[Any]) -> dict[str, Any] | None:
    """The lengths of the sequences in a batch, without their padding; None where it is no batch of padded sequences.

    Its `kind` is how they are known: by a "mask", the ends of rows of "ids" or of frames of "features", or by a tensor
    of "lengths" that such frames agree with.
    """
    plain = [part for part in parts if type(part) is torch.Tensor and part.is_cpu]
    found = (_find_in(torch, part, plain) for part in plain)
    return max((padding for padding in found if padding is not None), key=_weight, default=None)


def _weight(found: dict[str, Any]) -> tuple[bool, int]:
    """A mask is sure, and so are lengths that are told; among others the longest counts."""
    return found["kind"] in ("mask", "lengths"), found["length"]


def _find_in(torch: Any, part: Any, plain: Sequence[Any]) -> dict[str, Any] | None:
    if part.dim() not in (2, 3) or part.shape[0] < 2 or part.numel() == 0:
        return None
    others = sum(other.numel() for other in plain if other.shape[:2] != part.shape[:2])
    if others > part.numel():
        return None  # pictures with captions: the sequences are the lesser part
    part = part.detach()
    for frames in (part.unsqueeze(2),) if part.dim() == 2 else (part, part.transpose(1, 2)):
        rows, length = int(frames.shape[0]), int(frames.shape[1])
        if _SHORTEST <= length <= _LONGEST:
            ends = _lengths(torch, part) if part.dim() == 2 else None
            kind, value, lengths = ends or _of_features(torch, frames, plain) or ("", 0, [])
            if lengths:
                return {"kind": kind, "rows": rows, "length": length, "value": value, "lengths": lengths}
    return None


def _lengths(torch: Any, part: Any) -> _Lengths | None:
    name = str(part.dtype).removeprefix("torch.")
    if name not in _MASKS:
        return None
    # No more than some ten microseconds of work.
    most = max(2, min(_MOST_ROWS, _MOST_VALUES // part.shape[1]))
    part = part[:: max(1, -(-part.shape[0] // most))]
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
    is_curve = part.is_floating_point() and not bool((ones == part).all())  # it has values between zero and one
    return lengths if falls and min(lengths) > 0 and not is_curve else None


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


def _of_features(torch: Any, frames: Any, plain: Iterable[Any]) -> _Lengths | None:
    """Of rows by frames by features: rows that end in frames of one and the same value."""
    if not frames.is_floating_point():
        return None
    rows, length, width = frames.shape
    step = max(1, -(-rows // max(2, min(_MOST_ROWS, _MOST_VALUES // length))))
    frames = frames[::step]
    value = _padding_value(frames[:, -2:, :: -(-width // _MOST_IN_FRAME)])
    if value is None:
        return None
    places = len(frames) * length
    looked_at = max(_FEWEST_IN_FRAME, min(_MOST_IN_FRAME, _MOST_VALUES // places))
    filled_values = frames[:, :, :: -(-width // looked_at)] == value
    filled = filled_values.all(2)
    mixed: list[bool] = (~filled).any(1).tolist()
    if mixed.count(False) > _EMPTY_ROWS * len(mixed):
        return None
    runs: list[int] = (~filled).flip(1).to(torch.uint8).argmax(1).tolist()
    lengths = [length - run for run, is_mixed in zip(runs, mixed, strict=True) if is_mixed]
    for told in _told(plain, rows, length):
        if _agree([whole for whole, is_mixed in zip(told[::step], mixed, strict=True) if is_mixed], lengths):
            return "lengths", value, told[:: -(-rows // _MOST_TOLD)]
    # Not told, it could be a picture with a dark border: as wide as it is high, or the same border in all of them.
    if length == width or len(set(lengths)) == 1:
        return None
    # Where most features often have the value in the text as well, so that whole frames may, it does not tell padding.
    most = places - sum(lengths) + _IN_TEXT * sum(lengths) + len(lengths)
    is_rare = [count <= most for count in filled_values.flatten(0, 1).sum(0).tolist()]
    return ("features", value, lengths) if 2 * sum(is_rare) >= len(is_rare) else None


def _padding_value(ends: Any) -> float | None:
    """The value of all that is in the last frames, in most rows of which that can be said."""
    last = ends[:, -1, 0]
    is_one = (ends == last[:, None, None]).flatten(1).all(1)
    values = Counter(value for value, is_same in zip(last.tolist(), is_one.tolist(), strict=True) if is_same)
    if not values:
        return None
    value, count = values.most_common(1)[0]
    return float(value) if 2 * count > values.total() and math.isfinite(value) else None


def _told(plain: Iterable[Any], rows: int, length: int) -> Iterator[list[int]]:
    """What could be the lengths of so many rows."""
    for part in plain:
        if tuple(part.shape) == (rows,) and str(part.dtype).removeprefix("torch.") in _IDS:
            told = part.tolist()
            if min(told) >= 1 and max(told) <= length:
                yield told


def _agree(told: Sequence[int], found: Sequence[int]) -> bool:
    """The text itself may end in a few frames of the value that pads it: silence, say."""
    more = [length - seen for length, seen in zip(told, found, strict=True)]
    return min(more) >= 0 and sum(more) <= _IN_TEXT * sum(told) + len(told)

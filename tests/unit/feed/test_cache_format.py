"""Samples as flat bytes and back: the same types, shapes, bytes, and memory of one's own."""

from __future__ import annotations

import collections
import gc
import sys
import threading
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flatout.feed.cache import format as cache_format
from flatout.feed.cache.format import NotFlat, decode, encode
from flatout.feed.cache.randomness import alike

Point = collections.namedtuple("Point", "x y")

DTYPES = [torch.uint8, torch.int64, torch.float32, torch.float16, torch.bfloat16, torch.bool, torch.complex64]
plain = st.one_of(
    st.integers(), st.floats(allow_nan=True), st.booleans(), st.text(max_size=8), st.binary(max_size=8), st.none()
)
shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
tensors = st.builds(lambda s, d: (torch.rand(s) * 9).to(d), shapes, st.sampled_from(DTYPES))
arrays = st.builds(lambda s: (np.random.default_rng(0).random(s) * 9).astype(np.int16), shapes)
scalars = st.sampled_from([np.float32(0.1), np.int64(-3), np.bool_(True)])
leaves = st.one_of(plain, tensors, arrays, scalars)
samples = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=4), inner, max_size=3),
    ),
    max_leaves=6,
)


def stored(sample: Any) -> tuple[memoryview, int, int, int]:
    payload = encode(sample)
    data = b"".join(bytes(part) for part in payload.parts)
    assert len(data) == payload.nbytes
    return memoryview(bytes(192) + data), 192, payload.head_bytes, payload.layout_key


def there_and_back(sample: Any) -> Any:
    return decode(*stored(sample))


@given(samples)
def test_a_sample_comes_back_the_same(sample: Any) -> None:
    assert alike(there_and_back(sample), sample)


@pytest.mark.parametrize("label", [0, -1, 2**63 - 1, -(2**63), 2**63, True, 1.5, None, "seven"])
def test_a_label_keeps_its_value_and_its_type(label: Any) -> None:
    image, back = there_and_back((torch.arange(6), label))

    assert torch.equal(image, torch.arange(6)) and back == label and type(back) is type(label)


@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 0, 1), (2, 1, 0)])
def test_the_order_in_memory_is_kept(axes: tuple[int, int, int]) -> None:
    tensor = torch.rand(2, 3, 4).permute(axes)
    array = np.random.default_rng(0).random((2, 3, 4)).transpose(axes)

    back, again = there_and_back((tensor, array))

    assert torch.equal(back, tensor) and back.stride() == tensor.stride()
    assert np.array_equal(again, array) and again.strides == array.strides


def test_what_has_gaps_or_repeats_is_made_whole() -> None:
    tensor = torch.arange(12).reshape(3, 4)[:, ::2]
    repeated = torch.tensor([1.0]).expand(5)

    back, spread = there_and_back((tensor, repeated))

    assert torch.equal(back, tensor) and back.is_contiguous()
    assert torch.equal(spread, repeated) and spread.untyped_storage().nbytes() >= 20


def test_other_types_are_pickled_with_their_arrays_beside() -> None:
    sample = Point(torch.arange(100_000), {"names": {"a", "b"}})

    payload = encode(sample)
    back = there_and_back(sample)

    assert payload.head_bytes < 1000
    assert type(back) is Point and torch.equal(back.x, sample.x) and back.y == sample.y
    back.x.add_(1)


def test_a_tensor_in_two_places_comes_back_as_one() -> None:
    tensor = torch.arange(3)

    one, other = there_and_back((tensor, tensor))

    assert one is other


@pytest.mark.parametrize("sample", [torch.ones(2, requires_grad=True), torch.eye(2).to_sparse(), lambda: 0])
def test_what_would_not_come_back_the_same_is_refused(sample: Any) -> None:
    with pytest.raises(NotFlat):
        encode((sample, 1))


def test_images_are_kept() -> None:
    images = pytest.importorskip("PIL.Image", reason="pillow is not installed: make setup")
    image = images.effect_noise((20, 10), 50).convert("RGB")

    back, label = there_and_back((image, 3))

    assert back.tobytes() == image.tobytes() and back.size == image.size and label == 3


def test_changing_a_sample_does_not_change_the_payload() -> None:
    payload = stored((torch.zeros(50, dtype=torch.uint8), np.zeros(50, np.uint8)))
    before = bytes(payload[0])

    for part in decode(*payload):
        part += 1

    assert bytes(payload[0]) == before
    assert all(int(part.sum()) == 0 for part in decode(*payload))


def test_memory_is_used_again_only_when_nobody_holds_it() -> None:
    if cache_format._holders is None:
        pytest.skip("this torch does not tell who holds memory")
    payload = stored((torch.arange(5000),))
    held = [decode(*payload)[0] for _ in range(4)]
    view = decode(*payload)[0][10:20]
    as_numpy = decode(*payload)[0].numpy()
    addresses = {tensor.data_ptr() for tensor in held}

    for _ in range(20):
        decode(*payload)[0].fill_(-1)

    assert all(torch.equal(tensor, torch.arange(5000)) for tensor in held)
    assert torch.equal(view, torch.arange(10, 20)) and np.array_equal(as_numpy, np.arange(5000))
    held.clear()
    gc.collect()
    assert addresses & {decode(*payload)[0].data_ptr() for _ in range(50)}


def test_threads_never_share_memory() -> None:
    payloads = [stored((torch.full((5000,), number),)) for number in range(4)]
    mixed: list[int] = []

    def read(number: int) -> None:
        for _ in range(1500):
            tensor = decode(*payloads[number])[0]
            if not tensor.eq(number).all():
                mixed.append(number)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)

    assert not mixed


def test_a_tensor_moved_to_shared_memory_is_never_written_again() -> None:
    payload = stored((torch.arange(5000),))
    shared = decode(*payload)[0].share_memory_()
    # As another process has it: a mapping of its own, which no count here knows of.
    other = torch.UntypedStorage._new_shared_filename_cpu(*shared.untyped_storage()._share_filename_cpu_())
    del shared

    # More often than there is idle memory of that kind from other tests.
    for _ in range(300):
        decode(*payload)[0].fill_(-1)

    assert torch.equal(torch.tensor([], dtype=torch.int64).set_(other)[:5000], torch.arange(5000))


def test_idle_memory_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_format, "_MOST_IDLE_BYTES", cache_format._idle_bytes)
    payload = stored((torch.arange(77, dtype=torch.int16),))
    before = cache_format._idle_bytes

    tensors = [decode(*payload)[0] for _ in range(5)]

    assert cache_format._idle_bytes == before
    assert all(torch.equal(tensor, torch.arange(77, dtype=torch.int16)) for tensor in tensors)

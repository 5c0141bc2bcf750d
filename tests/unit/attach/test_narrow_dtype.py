"""Which narrower type would hold a tensor's values, by a look at a few of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flatout.attach.narrow_dtype import DtypeFit, find_narrowest_dtype

_SOURCE = torch.Generator().manual_seed(0)
BYTES = torch.randint(0, 256, (8, 3, 64, 64), generator=_SOURCE, dtype=torch.uint8)
NOISE = torch.randn(8, 3, 64, 64, generator=_SOURCE)
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
NORMALISED = (BYTES.float() / 255 - MEAN) / STD


@pytest.mark.parametrize(
    ("tensor", "found"),
    [
        (BYTES.float(), ("uint8", 1)),
        (BYTES.float() / 255, ("uint8", 1)),
        (BYTES.double() / 255, ("uint8", 1)),
        (BYTES.float() / 127.5 - 1, ("uint8", 1)),
        (NORMALISED, ("uint8", 1)),
        (NORMALISED.contiguous(memory_format=torch.channels_last), ("uint8", 1)),
        (NORMALISED.permute(0, 2, 3, 1).contiguous(), ("uint8", 1)),
        ((BYTES > 100).float(), ("bool", 1)),
        (BYTES.long() // 13, ("uint8", 1)),
        (BYTES.long() // 2 - 100, ("int8", 1)),
        (torch.randint(0, 30_000, (32, 512)), ("int32", 4)),
        (NOISE.half().float(), ("float16", 2)),
        (NOISE.double(), ("float32", 4)),
        (NOISE, ("float32", 4)),
        (NOISE.to(torch.bfloat16), ("bfloat16", 2)),
        (torch.where(NOISE > 0, NOISE, torch.nan), ("float32", 4)),
        # Evenly spaced, but more of them than 8 bits tell apart.
        (torch.linspace(0, 1, 8 * 64 * 64).view(8, 1, 64, 64), ("float32", 4)),
    ],
)
def test_the_narrowest_type_is_found(tensor: Any, found: tuple[str, int]) -> None:
    assert find_narrowest_dtype(torch, tensor) == found


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(8, 3, 64, 64),
        BYTES,
        NOISE.clone().requires_grad_(),
        NOISE[:, :, ::2, ::2],
        NOISE[0, 0, :4],
        torch.nn.Parameter(NOISE),
        NOISE.to_sparse(),
    ],
)
def test_nothing_is_said_of_what_tells_nothing(tensor: Any) -> None:
    assert find_narrowest_dtype(torch, tensor) is None


def test_a_line_keeps_the_widest_for_each_kind_of_tensor() -> None:
    seen = DtypeFit()

    for count, tensor in enumerate((NORMALISED, NOISE[:, :1].contiguous(), NORMALISED), start=1):
        assert count >= seen.next_look
        assert seen.look(torch, tensor, count)

    kinds = {(kind["dtype"], kind["narrow"]): kind["bytes"] for kind in seen.kinds.values()}
    assert kinds == {("float32", "uint8"): 2 * NOISE.nbytes, ("float32", "float32"): NOISE.nbytes // 3}
    assert seen.bytes == 2 * NOISE.nbytes + NOISE.nbytes // 3

    assert seen.look(torch, NOISE, 4)
    assert ("float32", "float32") in {(kind["dtype"], kind["narrow"]) for kind in seen.kinds.values()}
    assert not any(kind["narrow"] == "uint8" for kind in seen.kinds.values())


def test_looks_become_seldom_and_fall_on_either_of_two_tensors() -> None:
    seen, looked = DtypeFit(), []
    for count in range(1, 10_000):
        if count >= seen.next_look:
            seen.look(torch, NOISE, count)
            looked.append(count)

    assert len(looked) < 12
    assert {count % 2 for count in looked[3:]} == {0, 1}

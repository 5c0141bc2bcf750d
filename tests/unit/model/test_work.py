"""What a step asks of the device, counted from its operations: beside torch's own counter, and by hand."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from flatout.attach.watch.operations import OperationWindow, describe_operations
from flatout.diagnose.work import read_operations
from flatout.model.attention import find_hand_attention
from flatout.model.work import Given, Operation, bytes_of, flops_of, fused_bytes, kind_of, shares_of


def record(step: Callable[[], object], *, with_memory: bool = True) -> list[Operation]:
    """The operations of a step on the CPU, written down and read again."""
    step()
    window = OperationWindow(torch, "cpu", with_memory)
    window.open()
    step()
    told = {"with_memory": with_memory, "convolves_in_tf32": False, **describe_operations(window.close())}
    return read_operations(json.loads(json.dumps(told)))


def _trains(model: nn.Module, *given: torch.Tensor) -> Callable[[], None]:
    def step() -> None:
        model.zero_grad()
        model(*given).square().mean().backward()

    return step


class Attention(nn.Module):
    """As a script writes it."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.all, self.out, self.fused = nn.Linear(32, 96), nn.Linear(32, 32), fused

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (part.view(2, 48, 4, 8).transpose(1, 2) for part in self.all(x).split(32, 2))
        if self.fused:
            mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        else:
            scores = query @ key.transpose(-2, -1) * 0.35
            mixed = nn.functional.dropout(scores.softmax(-1), 0.1) @ value
        return self.out(mixed.transpose(1, 2).reshape(2, 48, 32))


_CONVOLUTIONS = nn.Sequential(
    nn.Conv2d(8, 16, 3, stride=2, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.Conv2d(16, 16, 3, padding=2, dilation=2),
    nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1),
    nn.Conv2d(8, 8, 5, padding="same"),
)
_VOLUMES = nn.Sequential(nn.Conv3d(2, 4, 3, padding=1), nn.LeakyReLU(), nn.Conv3d(4, 4, 3, stride=2))


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)), torch.randn(16, 32, requires_grad=True)),
        (_CONVOLUTIONS, torch.randn(4, 8, 32, 32, requires_grad=True)),
        (_CONVOLUTIONS, torch.randn(4, 8, 32, 32)),
        (_VOLUMES, torch.randn(2, 2, 8, 8, 8)),
        (nn.Conv1d(4, 8, 5), torch.randn(2, 4, 64)),
        (Attention(fused=False), torch.randn(2, 48, 32)),
    ],
)
def test_arithmetic_is_counted_as_torch_counts_it(model: nn.Module, given: torch.Tensor) -> None:
    step = _trains(model, given)
    with FlopCounterMode(display=False) as counter:
        step()

    assert sum(map(flops_of, record(step))) == counter.get_total_flops()


def test_a_convolution_of_groups_multiplies_within_its_groups() -> None:
    given = torch.randn(2, 16, 8, 8, requires_grad=True)
    operations = record(_trains(nn.Conv2d(16, 16, 3, padding=1, groups=4), given))

    # 2 images of 64 places, 16 * 4 * 9 weights, forward and twice backward.
    assert sum(map(flops_of, operations)) == 3 * 2 * 2 * 64 * 16 * 4 * 9


def test_an_attention_kernel_is_four_products_and_five_back() -> None:
    shape = (2, 4, 48, 8)
    query = Given(shape, (1536, 8, 32, 1), "bfloat16")
    for name in ("aten::_scaled_dot_product_flash_attention", "aten::_scaled_dot_product_efficient_attention"):
        forward = Operation(name, "forward", (query, query, query))
        backward = Operation(name + "_backward", "backward", (query, query, query, query))

        assert flops_of(forward) == 4 * 2 * 4 * 48 * 48 * 8 and flops_of(backward) == 2.5 * flops_of(forward)


def test_recurrent_weights_multiply_each_place_of_each_sequence() -> None:
    given = (Given((100, 32, 64), (2048, 64, 1), "float32"), Given((33_000,), (1,), "float32"))

    assert flops_of(Operation("aten::_cudnn_rnn", "forward", given)) == 2 * 100 * 32 * 33_000
    assert flops_of(Operation("aten::_cudnn_rnn_backward", "backward", given)) == 4 * 100 * 32 * 33_000


@pytest.mark.parametrize(
    ("name", "phase", "kind"),
    [
        ("aten::addmm", "forward", "gemm"),
        ("aten::convolution_backward", "backward", "convolution"),
        ("aten::native_batch_norm", "forward", "normalisation"),
        ("aten::native_layer_norm_backward", "backward", "normalisation"),
        ("aten::_softmax_backward_data", "backward", "reduction"),
        ("aten::_log_softmax", "forward", "reduction"),
        ("aten::max_pool2d_with_indices", "forward", "reduction"),
        ("aten::embedding_dense_backward", "backward", "indexing"),
        ("aten::copy_", "forward", "copy"),
        ("aten::gelu", "forward", "pointwise"),
        ("aten::masked_fill_", "forward", "indexing"),
        ("aten::_foreach_lerp_", "optimizer", "optimizer"),
        ("flash_attn::_flash_attn_forward", "forward", "attention"),
        ("c10d::allreduce_", "backward", "communication"),
        ("mine::anything", "forward", "pointwise"),
    ],
)
def test_kinds_of_operations(name: str, phase: str, kind: str) -> None:
    assert kind_of(Operation(name, phase, (Given((8,), (1,), "float32"),))) == kind


def test_bytes_are_what_is_read_and_written() -> None:
    wide, one = Given((64, 64), (64, 1), "float32", 1), Given((64, 64), (0, 1), "float32", 2)

    assert bytes_of(Operation("aten::add", "forward", (wide, one), ((3, 16384),))) == 16384 + 256 + 16384
    assert bytes_of(Operation("aten::add_", "forward", (wide, wide), ())) == 3 * 16384
    assert bytes_of(Operation("aten::zero_", "forward", (wide,), ())) == 16384
    assert bytes_of(Operation("aten::copy_", "forward", (wide, one), ())) == 16384 + 256
    # What it made was not recorded.
    assert bytes_of(Operation("aten::add", "forward", (wide, one))) == 16384 + 256 + 16384


def test_fusing_leaves_what_was_there_before_and_what_is_read_after() -> None:
    given = torch.randn(256, 256)

    def chain() -> None:
        (torch.tanh(given) * 2 + 1).mm(given)

    operations = [operation for operation in record(chain) if operation.phase == "forward"]
    left = dict(zip([operation.name for operation in operations], fused_bytes(operations) or [], strict=True))
    whole = 4 * 256 * 256

    # One kernel reads it and writes what the product reads. In one of its own, each operation reads and writes.
    assert left["aten::tanh"] == whole and left["aten::mm"] == 3 * whole
    assert left["aten::mul"] == pytest.approx(0, abs=64) and left["aten::add"] == pytest.approx(whole, abs=64)
    assert sum(map(bytes_of, operations)) == pytest.approx((6 + 3) * whole, abs=64)


def test_what_backward_needs_is_written_by_the_fused_kernel() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 64))
    operations = record(_trains(model, torch.randn(512, 64)))
    left = fused_bytes(operations)
    assert left is not None
    by_name = dict(zip([operation.name for operation in operations], left, strict=True))

    # The result of GELU is normalised in the same kernel, and computed again for the backward of the norm.
    assert by_name["aten::gelu"] == 4 * 512 * 64
    shares = {share.kind: share for share in shares_of(operations)}
    assert shares["gemm"].fused_bytes == shares["gemm"].bytes
    assert (shares["normalisation"].fused_bytes or 0) < shares["normalisation"].bytes


def test_a_loss_over_many_classes_is_computed_again_from_what_the_product_made() -> None:
    """In bf16 the logits are cast, and their logarithms kept for the backward pass: four times what was there."""
    model, given = nn.Linear(64, 4096, bias=False), torch.randn(512, 64)
    wanted = torch.randint(4096, (512,))

    def step() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(given)
        F.cross_entropy(logits.float(), wanted).backward()

    operations = record(step)
    left = fused_bytes(operations)
    assert left is not None
    around = [place for place, one in enumerate(operations) if "softmax" in one.name or "nll" in one.name]
    first, last = around[0] - 1, around[-1] + 1
    logits = 2 * 512 * 4096

    # Read once in either pass, and the gradient written; before: cast, normalised, and both again the other way.
    assert sum(left[first : last + 1]) == pytest.approx(3 * logits, rel=0.02)
    assert sum(map(bytes_of, operations[first : last + 1])) > 20 * logits


def test_a_copy_does_not_read_what_it_writes_over() -> None:
    kept, given = torch.zeros(512, 64), torch.randn(512, 64)

    operations = record(lambda: kept.copy_(given * 2 + 1))

    whole = 4 * 512 * 64
    left = fused_bytes([operation for operation in operations if operation.phase == "forward"])
    assert sum(left or []) == pytest.approx(2 * whole, abs=64)


def test_a_batch_norm_is_given_its_input_twice_whether_fused_or_not() -> None:
    image = 4 * 4 * 8 * 16 * 16
    operations = record(
        _trains(nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU()), torch.randn(4, 8, 16, 16))
    )
    place = next(place for place, operation in enumerate(operations) if "batch_norm" in operation.name)

    assert bytes_of(operations[place]) == pytest.approx(3 * image, rel=0.02)
    assert (fused_bytes(operations) or [])[place] >= 2 * image


def test_without_memory_the_rest_is_known() -> None:
    step = _trains(nn.Sequential(nn.Linear(64, 64), nn.GELU()), torch.randn(32, 64))
    with_memory, without = shares_of(record(step)), shares_of(record(step, with_memory=False))

    assert all(share.fused_bytes is None for share in without)
    assert {share.kind: share.flops for share in without} == {share.kind: share.flops for share in with_memory}
    for one, other in zip(with_memory, without, strict=True):
        assert (one.kind, one.precision, one.count) == (other.kind, other.precision, other.count)
        assert other.bytes == pytest.approx(one.bytes, rel=0.35, abs=64)


def test_the_optimizer_is_one_kernel_over_its_lists() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        model(torch.ones(4, 64)).mean().backward()
        optimizer.step()

    shares = {share.kind: share for share in shares_of(record(step))}

    assert shares["optimizer"].flops == 0
    assert 0 < (shares["optimizer"].fused_bytes or 0) < shares["optimizer"].bytes


def test_attention_by_hand_is_seen_by_the_sizes_of_its_scores() -> None:
    x = torch.randn(2, 48, 32)
    found = find_hand_attention(record(_trains(Attention(fused=False), x)))

    assert found is not None and (found.calls, found.rows, found.columns) == (1.0, 48, 48)
    scores = 4 * 2 * 4 * 48 * 48
    # Forward: the product, the scale, the softmax and dropout and the second product; backward as many again.
    assert 10 * scores < found.bytes < 40 * scores


def test_attention_in_one_kernel_is_none_by_hand() -> None:
    assert find_hand_attention(record(_trains(Attention(fused=True), torch.randn(2, 48, 32)))) is None


def test_a_softmax_over_classes_is_no_attention() -> None:
    class Classes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x).softmax(-1))

    assert find_hand_attention(record(_trains(Classes(), torch.randn(4, 12, 8)))) is None

"""The layout of convolutions and the cost of anomaly mode, read off a real autograd graph."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from flatout.attach.graph import ConvolutionLayouts, GraphInspector


def looked_at(out: Any) -> ConvolutionLayouts:
    look, queue, seen = ConvolutionLayouts(torch), [out.grad_fn], set()
    while queue:
        node = queue.pop()
        if node is not None and node not in seen:
            seen.add(node)
            look.look(node, node.name())
            queue += [following for following, _ in node.next_functions]
    return look


def model() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.Conv2d(32, 32, 3, groups=32), nn.Conv2d(32, 8, 1)
    )


IMAGES = torch.randn(2, 3, 16, 16)
LAST = torch.channels_last


def test_channels_first_and_the_matrix_product_beside() -> None:
    net = model()

    look = looked_at(nn.Linear(8 * 10 * 10, 4)(net(IMAGES).flatten(1)))

    # Of three channels, and one for each channel: nothing for tensor cores.
    assert look.layouts == {"channels_first float32": 2}
    assert look.counts == {"convolutions": 4, "products": 1}


def test_under_autocast_the_dtype_is_that_of_the_result() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        out = model()(IMAGES)

    assert looked_at(out).layouts == {"channels_first bfloat16": 2}


def test_channels_last_of_the_model_or_of_the_images_is_enough() -> None:
    assert looked_at(model().to(memory_format=LAST)(IMAGES)).layouts == {"channels_last float32": 2}
    assert looked_at(model()(IMAGES.to(memory_format=LAST))).layouts == {"channels_last float32": 2}


def test_hooks_on_what_was_saved_are_not_called() -> None:
    called = []

    def unpack(saved: Any) -> Any:
        called.append(1)
        return saved

    with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, unpack):
        out = model()(IMAGES)
    look = looked_at(out)

    assert not called
    assert look.layouts == {"unknown float32": 3}


def test_a_checkpointed_forward_is_not_run_again() -> None:
    runs = []

    def forward(images: Any) -> Any:
        runs.append(1)
        return net(images)

    net = model()
    look = looked_at(checkpoint(forward, IMAGES, use_reentrant=False))

    assert len(runs) == 1
    assert set(look.layouts) <= {"unknown float32"}


def test_gradients_of_gradients_of_convolutions_are_no_trouble() -> None:
    net = nn.Sequential(nn.Conv2d(16, 16, 3), nn.Tanh(), nn.Conv2d(16, 8, 3))
    images = torch.randn(2, 16, 16, 16, requires_grad=True)

    (first,) = torch.autograd.grad(net(images).square().sum(), images, create_graph=True)

    assert looked_at(first.square().sum()).counts["convolutions"] >= 2


def test_other_convolutions_and_a_freed_graph_are_no_trouble() -> None:
    out = nn.Conv1d(8, 8, 3)(torch.randn(2, 8, 16)).sum() + nn.ConvTranspose2d(8, 8, 3)(torch.randn(2, 8, 4, 4)).sum()
    out.backward()

    assert looked_at(out).counts["convolutions"] == 2


def test_anomaly_mode_is_timed_where_it_is_on() -> None:
    value = torch.ones(4, requires_grad=True)
    inspector = GraphInspector(torch, SimpleNamespace(graph_samples=None), SimpleNamespace(note_graph=len))  # type: ignore[arg-type]

    inspector.look(value.exp().sum())
    assert inspector.anomaly_ms is None
    with torch.autograd.detect_anomaly(check_nan=False):
        made = value
        for _ in range(50):
            made = made.exp()
        inspector.look(made.sum())

    # Fifty-two nodes, each with a Python stack of some frames.
    assert inspector.operations >= 51 and inspector.anomaly_ms is not None and inspector.anomaly_ms > 0.1
    assert value.grad is None


# Work in float64: the largest product of a real graph, and both types timed.


PADDING: Any = SimpleNamespace(note_graph=lambda shapes: None)


def inspected(out: torch.Tensor) -> GraphInspector:
    inspector = GraphInspector(torch, SimpleNamespace(), PADDING)  # type: ignore[arg-type]
    inspector.look(out)
    return inspector


def test_the_largest_product_is_timed_in_both_types() -> None:
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 32)).double()
    before = torch.get_rng_state()

    inspector = inspected(net(torch.ones(128, 64, dtype=torch.float64)).sum())
    factors = inspector.wide.time()

    assert inspector.wide._product == (128, 64, 256)
    assert set(inspector.elements) == {"float64"}
    assert factors is not None and set(factors) == {"product", "elementwise"}
    assert all(0.2 < factor < 20 for factor in factors.values())
    assert torch.equal(torch.get_rng_state(), before)


def test_a_convolution_is_the_product_that_it_comes_to() -> None:
    net = nn.Conv2d(3, 8, 3).double()

    inspector = inspected(net(torch.ones(2, 3, 10, 10, dtype=torch.float64)).sum())

    assert inspector.wide._product == (2 * 8 * 8, 3 * 3 * 3, 8)


def test_nothing_is_timed_in_float32_even_if_the_loss_is_wide() -> None:
    narrow = inspected(nn.Linear(64, 64)(torch.ones(8, 64)).sum())
    mixed = inspected(nn.Linear(64, 64)(torch.ones(8, 64)).mean().double() * 2)

    assert narrow.wide.time() is None
    assert mixed.elements["float64"] < 0.05 * mixed.elements["float32"]
    assert set(mixed.wide.time() or {}) == {"elementwise"}


def test_of_a_large_product_a_part_of_the_rows_is_timed() -> None:
    net = nn.Linear(1024, 1024, bias=False).double()

    inspector = inspected(net(torch.ones(2048, 1024, dtype=torch.float64)).sum())

    assert set(inspector.wide.time() or {}) == {"product", "elementwise"}

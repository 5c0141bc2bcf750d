"""The layout of convolutions, read off a real autograd graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from flatout.attach.graph import ConvolutionLayouts


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


def test_other_convolutions_and_a_freed_graph_are_no_trouble() -> None:
    out = nn.Conv1d(8, 8, 3)(torch.randn(2, 8, 16)).sum() + nn.ConvTranspose2d(8, 8, 3)(torch.randn(2, 8, 4, 4)).sum()
    out.backward()

    assert looked_at(out).counts["convolutions"] == 2

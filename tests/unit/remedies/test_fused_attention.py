"""Attention written by hand as one kernel: the same results in every style, or left as it is."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from flatout.records.message import verbatim
from flatout.records.report import Finding
from flatout.remedies.compute.fused_attention import AttentionLook, FusedAttentions, applies
from flatout.remedies.compute.worth import Worth
from flatout.remedies.site import Site
from flatout.words import english
from tests.cases.evidence import on_gpu, run
from tests.unit.remedies.applied import applied, reason, site_for
from tests.unit.remedies.attentions import (
    LEFT_ALONE,
    STYLES,
    TOKENS,
    WIDTH,
    Added,
    Annotated,
    AroundDotProduct,
    Bert,
    Fairseq,
    Keeps,
    NanoGPT,
    Swin,
    TalkingHeads,
    Textbook,
    Timm,
)
from tests.unit.remedies.training import steps_told_to


class Fused:
    """A model whose attention was looked at in one step, and may be fused from now on."""

    def __init__(self, model: nn.Module, *given: Any, run: Callable[[], Any] | None = None) -> None:
        self.model = model
        self.site: Site = site_for("attention.fused", True)
        look = AttentionLook(self.site)
        look.begin()
        _loss(run() if run is not None else model(*given)).backward()
        look.step(1)
        look.end()
        model.zero_grad()
        self.calls = FusedAttentions(self.site)
        self.calls.begin(look.owners, look.lines)
        self.step_number = 1

    def step(self) -> None:
        self.step_number += 1
        self.calls.step(self.step_number)


Fuse = Callable[..., Fused]


@pytest.fixture
def fuse() -> Iterator[Fuse]:
    made: list[Fused] = []

    def make(*args: Any, **kwargs: Any) -> Fused:
        made.append(Fused(*args, **kwargs))
        return made[-1]

    yield make
    for fused in made:
        fused.site.revert()


def _loss(out: Any) -> Tensor:
    out = out[0] if isinstance(out, tuple) else out
    random = torch.Generator().manual_seed(1)
    return (out.float() * torch.randn(out.shape, generator=random)).sum()


def _batch(tokens: int = TOKENS, seed: int = 0) -> Tensor:
    return torch.randn(4, tokens, WIDTH, generator=torch.Generator().manual_seed(seed))


def _passes(model: nn.Module, *given: Any) -> tuple[Any, list[Tensor]]:
    model.zero_grad()
    out = model(*given)
    _loss(out).backward()
    return out, [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def _make(kind: Any, p: float = 0.0) -> Any:
    torch.manual_seed(0)
    return kind(p)


def _assert_alike(ours: Any, bare: Any, close: float = 1e-5) -> None:
    """A bias of the keys has a gradient that is nothing but rounding."""
    pairs = list(zip([ours[0], *ours[1]], [bare[0], *bare[1]], strict=True))
    size = max(float(other.detach().nan_to_num().abs().max()) for _, other in pairs)
    for out, other in pairs:
        torch.testing.assert_close(out, other, rtol=close, atol=close * size, equal_nan=True)


@pytest.mark.parametrize("kind", STYLES)
def test_every_style_is_one_kernel_with_the_same_results(fuse: Fuse, kind: Any) -> None:
    model, bare = _make(kind), _make(kind)
    fused = fuse(model, _batch())
    names = list(model.state_dict())

    for _ in range(4):
        ours = _passes(model, _batch())
        fused.step()

    assert fused.calls.in_last_step == 1, reason(fused.site) or fused.site.live
    _assert_alike(ours, _passes(bare, _batch()))
    assert list(model.state_dict()) == names == list(bare.state_dict())
    assert fused.site.live["error_times"] <= 8.0 and "left_alone" not in fused.site.live
    fused.site.revert()
    assert torch.equal(model(_batch()), bare(_batch()))


@pytest.mark.parametrize("kind", LEFT_ALONE)
def test_what_the_kernel_cannot_do_is_left_alone(fuse: Fuse, kind: Any) -> None:
    model, bare = _make(kind), _make(kind)
    fused = fuse(model, _batch())

    for _ in range(3):
        ours = _passes(model, _batch())
        fused.step()

    assert fused.calls.in_last_step == 0
    plain = _passes(bare, _batch())
    assert all(torch.equal(a, b) for a, b in zip(ours[1], plain[1], strict=True))


def test_results_that_only_the_scripts_layout_allows(fuse: Fuse) -> None:
    """A view of what the kernel gave; the first call is made again, and from then on it is laid out so."""
    model, bare = _make(AroundDotProduct), _make(AroundDotProduct)
    fused = fuse(model, _batch())
    for _ in range(4):
        ours = _passes(model, _batch())
        fused.step()

    assert fused.site.live["modules"] == ["DotProduct"] and fused.calls.in_last_step == 1
    _assert_alike(ours, _passes(bare, _batch()))


# Masks.


def _trained_with(fuse: Fuse, kind: Any, masks: list[Any]) -> tuple[Fused, list[Any], list[Any]]:
    """Passes with one mask after the other, the last ones fused; and those of the script as it is."""
    model, bare = _make(kind), _make(kind)
    fused = fuse(model, _batch(), masks[0])
    ours = []
    for mask in (masks[0], masks[0], *masks):
        ours.append(_passes(model, _batch(), mask))
        fused.step()
    return fused, ours[2:], [_passes(bare, _batch(), mask) for mask in masks]


def test_a_mask_that_changes_is_passed_as_it_is_now(fuse: Fuse) -> None:
    random = torch.Generator().manual_seed(0)
    masks = [(torch.rand(4, TOKENS, generator=random) < 0.7).float() for _ in range(4)]
    padding = [mask == 0 for mask in masks]

    for kind, given in ((Bert, masks), (Fairseq, padding)):
        fused, ours, bare = _trained_with(fuse, kind, given)

        assert fused.calls.in_last_step == 1, fused.site.live
        for mine, plain in zip(ours, bare, strict=True):
            _assert_alike(mine, plain)


def test_a_mask_that_is_changed_in_place_is_seen(fuse: Fuse) -> None:
    mask = torch.ones(4, TOKENS)
    model, bare = _make(Bert), _make(Bert)
    fused = fuse(model, _batch(), mask)
    for at in range(5):
        ours = _passes(model, _batch(), mask)
        fused.step()
        _assert_alike(ours, _passes(bare, _batch(), mask))
        mask[:, at] = 0.0

    assert fused.calls.in_last_step == 1


def test_a_buffer_that_is_no_longer_causal_is_seen(fuse: Fuse) -> None:
    model, bare = _make(NanoGPT), _make(NanoGPT)
    fused = fuse(model, _batch())
    for _ in range(3):
        _passes(model, _batch())
        fused.step()
    for changed in (model, bare):
        changed.bias[..., :5] = 1.0

    # It is passed as a mask from now on, which is proved first.
    for _ in range(3):
        _assert_alike(_passes(model, _batch()), _passes(bare, _batch()))
        fused.step()
    assert fused.calls.in_last_step == 1


def test_sequences_of_other_lengths_need_no_other_proof(fuse: Fuse) -> None:
    model, bare = _make(NanoGPT), _make(NanoGPT)
    fused = fuse(model, _batch())
    for tokens in (16, 16, 16, 9, 12, 7):
        _assert_alike(_passes(model, _batch(tokens)), _passes(bare, _batch(tokens)))
        fused.step()
        assert fused.calls.in_last_step == (fused.step_number > 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_that_are_masked_as_a_whole_come_out_as_the_script_has_them(fuse: Fuse, dtype: torch.dtype) -> None:
    """Not a number where they were filled with minus infinity, else the mean of all values; no score has a gradient."""
    whole = torch.ones(4, 1, TOKENS, TOKENS, dtype=torch.bool).tril()
    dead = whole.clone()
    dead[1, :, 3] = False
    dead[2] = False
    close = {torch.float32: 1e-5, torch.bfloat16: 0.05, torch.float16: 0.01}[dtype]

    for kind in (Textbook, Annotated):
        model, bare = _make(kind).to(dtype), _make(kind).to(dtype)
        x = _batch().to(dtype)
        fused = fuse(model, x, whole)
        for mask in (whole, whole, whole, dead):
            ours, plain = _passes(model, x, mask), _passes(bare, x, mask)
            fused.step()

        assert fused.calls.in_last_step == 1, fused.site.live
        assert torch.equal(ours[0].isnan(), plain[0].isnan())
        assert bool(ours[0].isnan().any()) is (kind is Textbook)
        if kind is Textbook:
            _assert_alike([ours[0].nan_to_num(), []], [plain[0].nan_to_num(), []], close)
            # What has lost its gradients by that has lost them here too.
            assert all(bool((a.isnan() >= b.isnan()).all()) for a, b in zip(ours[1], plain[1], strict=True))
            assert bool(model.v.weight.grad.isnan().any())
        else:
            _assert_alike(ours, plain, close)


@pytest.mark.parametrize("lowest", [-1e4, -1e9, torch.finfo(torch.float32).min])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_so_do_rows_from_which_much_is_taken_away(fuse: Fuse, dtype: torch.dtype, lowest: float) -> None:
    """The scores of such a row are what they were, or lost, by the precision that they have."""
    whole = torch.zeros(4, 1, 1, TOKENS, dtype=dtype)
    dead = whole.clone()
    dead[2] = max(lowest, torch.finfo(dtype).min)
    model, bare = _make(Added).to(dtype), _make(Added).to(dtype)
    x = _batch().to(dtype)
    fused = fuse(model, x, whole)
    for mask in (whole, whole, whole, dead):
        ours, plain = _passes(model, x, mask), _passes(bare, x, mask)
        fused.step()

    assert fused.calls.in_last_step == 1, fused.site.live
    _assert_alike((ours[0], []), (plain[0], []), 1e-3 if dtype is torch.float32 else 0.03)
    # Of scores that are lost the script's own form has a gradient all the same, of nothing; that of values is alike.
    is_lost = lowest < -1e4 or dtype is torch.bfloat16
    for (name, _), mine, other in zip(model.named_parameters(), ours[1], plain[1], strict=True):
        if not is_lost or not name.startswith(("q", "k")):
            close = 2e-3 if dtype is torch.float32 else 0.05
            torch.testing.assert_close(mine, other, rtol=close, atol=close * float(other.abs().max() + 1.0))


# Precision.


def test_under_autocast_the_kernel_computes_in_half_precision_as_well(fuse: Fuse) -> None:
    def passes(model: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            model.zero_grad()
            out = model(_batch())
        _loss(out).backward(retain_graph=True)
        return out, [parameter.grad.clone() for parameter in model.parameters()]

    for kind in (NanoGPT, Textbook, Swin):
        model, bare = _make(kind), _make(kind)
        fused = fuse(model, run=lambda model=model: passes(model)[0])
        for _ in range(4):
            ours = passes(model)
            fused.step()

        assert fused.calls.in_last_step == 1, fused.site.live
        assert ours[0].dtype is torch.bfloat16
        _assert_alike(ours, passes(bare), 0.03)


# Dropout.


def test_dropout_keeps_its_share_and_the_mean(fuse: Fuse) -> None:
    torch.manual_seed(0)
    model, bare = _make(Timm, 0.3), _make(Timm, 0.3).eval()
    fused = fuse(model, _batch())
    for _ in range(3):
        model(_batch())
        fused.step()
    with torch.no_grad():
        model(_batch())
        fused.step()

        outs = torch.stack([model(_batch()) for _ in range(600)])
        fused.step()

        assert fused.calls.in_last_step == 600
        spread = outs.std(0)
        torch.testing.assert_close(outs.mean(0), bare(_batch()), rtol=0.0, atol=6 * float(spread.max()) / 600**0.5)
        plain = torch.stack([bare.train()(_batch()) for _ in range(600)])
    torch.testing.assert_close(spread.mean(), plain.std(0).mean(), rtol=0.05, atol=0.0)


def test_evaluation_draws_nothing_and_is_fused_too(fuse: Fuse) -> None:
    model, bare = _make(Timm, 0.3), _make(Timm, 0.3).eval()
    fused = fuse(model, _batch())
    for _ in range(2):
        model(_batch())
        fused.step()
    model.eval()
    with torch.no_grad():
        for _ in range(3):
            state = torch.get_rng_state()
            out = model(_batch())
            fused.step()
            assert torch.equal(torch.get_rng_state(), state)

    assert fused.calls.in_last_step == 1
    torch.testing.assert_close(out, bare(_batch()))
    with torch.inference_mode():
        torch.testing.assert_close(model(_batch()), bare(_batch()))


def test_trying_it_out_draws_no_random_numbers(fuse: Fuse) -> None:
    def numbers(is_watched: bool) -> list[float]:
        model = _make(NanoGPT, 0.2)
        fused = fuse(model, _batch()) if is_watched else None
        torch.manual_seed(3)
        drawn = []
        for _ in range(2):
            drawn.append(_loss(model(_batch())).item())
            if fused is not None and len(drawn) < 2:
                fused.calls.in_last_step = 0
        if fused is not None:
            fused.step()
        drawn.append(torch.rand(()).item())
        return drawn

    assert numbers(True) == numbers(False)


# What scripts do around it.


class Block(nn.Module):
    """Computes its attention again in backward, if asked."""

    def __init__(self, kind: Any, reentrant: bool | None = None) -> None:
        super().__init__()
        self.norm, self.attention, self.reentrant = nn.LayerNorm(WIDTH), kind(), reentrant

    def forward(self, x: Tensor) -> Tensor:
        if self.reentrant is None:
            return x + self.attention(self.norm(x))
        out: Tensor = checkpoint(self.attention, self.norm(x), use_reentrant=self.reentrant)
        return x + out


@pytest.mark.parametrize("reentrant", [False, True])
def test_with_activation_checkpointing(fuse: Fuse, reentrant: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Block(NanoGPT, reentrant), Block(NanoGPT, reentrant))
    bare = copy.deepcopy(model)
    fused = fuse(model, _batch())
    for _ in range(4):
        ours = _passes(model, _batch())
        fused.step()

    # A part that is computed again may end before its attention's module does.
    assert fused.calls.in_last_step == (4 if reentrant else 2)
    _assert_alike(ours, _passes(bare, _batch()))


def test_a_hook_that_reads_the_weights_gets_them(fuse: Fuse) -> None:
    model = _make(Timm)
    fused = fuse(model, _batch())
    for _ in range(3):
        _passes(model, _batch())
        fused.step()
    assert fused.calls.in_last_step == 1

    kept: list[Tensor] = []
    model.attn_drop.register_forward_hook(lambda module, args, out: kept.append(out))
    for _ in range(3):
        model(_batch())
        fused.step()
    bare = _make(Timm)
    bare.attn_drop.register_forward_hook(lambda module, args, out: kept.append(out))
    bare(_batch())

    assert fused.site.state == "refused" and "scores or weights" in reason(fused.site)
    # The first were kept before it was left alone: they are computed now.
    assert all(torch.equal(weights + 0, kept[-1]) for weights in kept)
    assert pickle.loads(pickle.dumps(kept[0].detach())).equal(kept[-1])
    model(_batch())
    assert type(kept[-1]) is Tensor


class Sometimes(Keeps):
    """Keeps its weights where it is told to."""

    is_told = False

    def forward(self, x: Tensor) -> Tensor:
        if self.is_told:
            return super().forward(x)
        q, k, v = self.projected(x)
        return self.mixed((q @ k.transpose(-2, -1)).softmax(-1) @ v)


def test_weights_that_are_kept_later_on_are_the_scripts_own(fuse: Fuse) -> None:
    model, bare = _make(Sometimes), _make(Sometimes)
    fused = fuse(model, _batch())
    for _ in range(3):
        _passes(model, _batch())
        fused.step()
    assert fused.calls.in_last_step == 1

    model.is_told = bare.is_told = True
    ours, plain = _passes(model, _batch()), _passes(bare, _batch())

    assert type(model.weights) is Tensor and torch.equal(model.weights, bare.weights)
    assert all(torch.equal(a, b) for a, b in zip(ours[1], plain[1], strict=True))


class Branches(Annotated):
    """Does something else with its scores now and then."""

    calls = 0

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        self.calls += 1
        q, k, v = self.projected(x)
        scores = q @ k.transpose(-2, -1)
        if self.calls % 3 == 0:
            scores = scores.clamp(-5, 5).sigmoid()
        return self.mixed(scores.softmax(-1) @ v)


def test_a_branch_that_does_something_else_is_computed_as_it_is(fuse: Fuse) -> None:
    model, bare = _make(Branches), _make(Branches)
    fused = fuse(model, _batch())
    bare.calls = 1
    for _ in range(9):
        _assert_alike(_passes(model, _batch()), _passes(bare, _batch()))
        fused.step()

    assert (model.calls, fused.calls.in_last_step) == (10, 1)


def test_transforms_of_torch_func_see_the_scripts_own(fuse: Fuse) -> None:
    model, bare = _make(NanoGPT), _make(NanoGPT)
    fused = fuse(model, _batch())
    for _ in range(3):
        _passes(model, _batch())
        fused.step()

    def per_sample(module: nn.Module) -> Any:
        weights = {name: weight.detach() for name, weight in module.named_parameters()}

        def loss(weights: Any, x: Tensor) -> Tensor:
            return torch.func.functional_call(module, weights, (x[None],)).square().sum()

        return torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, _batch())

    for name, gradient in per_sample(model).items():
        torch.testing.assert_close(gradient, per_sample(bare)[name])


def test_copies_and_pickles_are_the_scripts_own(fuse: Fuse) -> None:
    model = _make(NanoGPT)
    fused = fuse(model, _batch())
    for _ in range(3):
        _passes(model, _batch())
        fused.step()

    twin = copy.deepcopy(model)
    assert pickle.loads(pickle.dumps(model)).state_dict().keys() == twin.state_dict().keys()
    assert torch.equal(twin(_batch()), _make(NanoGPT)(_batch()))
    assert "__call__" in vars(NanoGPT)
    fused.site.revert()
    assert "__call__" not in vars(NanoGPT)


def test_an_error_of_the_scripts_own_is_raised_as_it_is(fuse: Fuse) -> None:
    model = _make(NanoGPT)
    fused = fuse(model, _batch())
    for _ in range(3):
        _passes(model, _batch())
        fused.step()

    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        model(torch.zeros(2, 3, 5))
    _passes(model, _batch())
    fused.step()
    assert fused.site.in_force


def test_a_thread_that_holds_a_frame_for_a_moment_does_no_harm(fuse: Fuse) -> None:
    model = _make(NanoGPT)
    fused = fuse(model, _batch())
    for _ in range(3):
        _passes(model, _batch())
        fused.step()
    held: list[Any] = []
    model.c_proj.register_forward_hook(lambda *_: held.append(sys._getframe(3)))
    thread = threading.Thread(target=lambda: (done.wait(), time.sleep(0.004), held.clear()))
    done = threading.Event()
    model.c_proj.register_forward_hook(lambda *_: done.set())
    thread.start()

    model(_batch())
    thread.join()
    fused.step()

    assert fused.calls.in_last_step == 1 and not held and fused.site.in_force


# Kernels that are not what they should be.

_KERNEL = "scaled_dot_product_attention"
_real = nn.functional.scaled_dot_product_attention


def _rounds(*args: Any, **kwargs: Any) -> Tensor:
    return _real(*args, **kwargs) * 1.001


def _leaves_rows_out(*args: Any, **kwargs: Any) -> Tensor:
    return _real(*args, **kwargs).masked_fill(torch.arange(TOKENS)[:, None] == 3, float("nan"))


def _fails(*args: Any, **kwargs: Any) -> Tensor:
    raise RuntimeError("no kernel for this")


def _needs_room(*args: Any, **kwargs: Any) -> Tensor:
    raise torch.OutOfMemoryError("out of memory")


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (_rounds, "times what the script's own form is off by"),
        (_leaves_rows_out, "other rows are not a number"),
        (_fails, "no kernel for this"),
        (_needs_room, "not enough memory"),
    ],
)
def test_a_kernel_that_does_not_stand_the_proof_is_not_used(
    fuse: Fuse, monkeypatch: pytest.MonkeyPatch, kernel: Any, why: str
) -> None:
    monkeypatch.setattr(nn.functional, _KERNEL, kernel)
    model, bare = _make(NanoGPT), _make(NanoGPT)
    fused = fuse(model, _batch())

    for _ in range(3):
        ours = _passes(model, _batch())
        fused.step()

    assert fused.calls.in_last_step == 0 and why in english(fused.calls.why_not)
    assert all(torch.equal(a, b) for a, b in zip(ours[1], _passes(bare, _batch())[1], strict=True))


def test_a_call_in_which_the_kernel_fails_is_made_again_without(fuse: Fuse, monkeypatch: pytest.MonkeyPatch) -> None:
    model, bare = _make(NanoGPT), _make(NanoGPT)
    fused = fuse(model, _batch())
    for _ in range(3):
        _passes(model, _batch())
        fused.step()
    monkeypatch.setattr(nn.functional, _KERNEL, _fails)

    for _ in range(2):
        ours = _passes(model, _batch())
        assert all(torch.equal(a, b) for a, b in zip(ours[1], _passes(bare, _batch())[1], strict=True))
        fused.step()

    assert fused.site.state == "refused" and "no kernel for this" in reason(fused.site)


def test_it_is_proved_again_later(fuse: Fuse, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _make(NanoGPT)
    fused = fuse(model, _batch())
    for _ in range(20):
        _passes(model, _batch())
        fused.step()
    monkeypatch.setattr(nn.functional, _KERNEL, _rounds)

    for _ in range(40):
        _passes(model, _batch())
        fused.step()

    assert fused.site.state == "reverted" and "earlier steps may be affected" in reason(fused.site)


# From the first step of a training to the last.


class Net(nn.Module):
    def __init__(self, kind: Any = NanoGPT) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(kind), Block(kind))
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.blocks(x))
        return out


def _train(model: Any, site: Site, steps: int = 70, create_graph: bool = False) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    losses = []
    with steps_told_to(site):
        for step in range(steps):
            x = _batch(seed=step)
            loss = (model(x) - x.roll(1, 1)).square().mean()
            optimizer.zero_grad()
            loss.backward(create_graph=create_graph and step == 12)
            optimizer.step()
            losses.append(loss.item())
    return losses


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes a second without, and half of that with it."""
    monkeypatch.setattr(Worth, "_now", lambda worth: worth._site.step * (0.5 if worth._before_s else 1.0))


@pytest.mark.usefixtures("quick")
def test_a_training_comes_to_the_same_loss() -> None:
    torch.manual_seed(0)
    model, bare = Net(), Net()
    bare.load_state_dict(model.state_dict())
    plain = _train(bare, site_for("attention.fused", True))

    with applied("attention.fused") as site:
        losses = _train(model, site)

        assert site.in_force and site.live["since_step"] == 16, (site.live, reason(site))
        assert (site.live["attentions"], site.live["modules"]) == (2, ["NanoGPT"])
        assert site.live["step_ms_after"] == 500 and site.live["step_ms_before"] == 1000
    assert losses[:16] == plain[:16] and losses != plain
    assert losses == pytest.approx(plain, rel=1e-4)
    assert "__call__" not in vars(NanoGPT) and nn.Module.__call__ is _module_call


_module_call = nn.Module.__call__


def test_one_that_is_slower_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worth, "_now", lambda worth: worth._site.step * (2.0 if worth._before_s else 1.0))

    with applied("attention.fused") as site:
        _train(Net(), site)

        assert site.state == "reverted" and "ms with the fused kernel" in reason(site)


class Pairs(Net):
    """A softmax is all that it has of an attention."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(x).softmax(-1)
        return out


def _compiled() -> nn.Module:
    model = Net()
    model.blocks[0]._compiled_call_impl = model.blocks[0]._call_impl
    return model


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (Pairs, "no attention written by hand was seen"),
        (lambda: Net(TalkingHeads), "scores or weights of the attention for something else"),
        (_compiled, "the script compiles the model itself"),
        (lambda: Net(Keeps), "scores or weights of the attention for something else"),
        (lambda: nn.DataParallel(Net()), "copies or pieces"),
    ],
)
def test_what_cannot_be_replaced_is_refused(make: Callable[[], nn.Module], why: str) -> None:
    with applied("attention.fused") as site:
        _train(make(), site, 40)

        assert site.state == "refused" and why in reason(site)
    assert nn.Module.__call__ is _module_call


def test_a_script_that_asks_for_deterministic_algorithms_is_left_alone() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        with applied("attention.fused") as site:
            _train(Net(), site, 8)

            assert site.state == "refused" and "deterministic" in reason(site)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.filterwarnings("ignore:Using backward")
def test_gradients_that_are_differentiated_again_refuse_it() -> None:
    with applied("attention.fused") as site:
        _train(Net(), site, 20, create_graph=True)

        assert site.state == "refused" and "create_graph" in reason(site)


def test_it_is_for_attention_that_a_run_was_found_to_spell_out() -> None:
    finding = Finding("CO510", "compute", "", "high", None, {}, verbatim(""), None, verbatim(""), None)
    bare = run(gpu=on_gpu()).report
    found = replace(bare, findings=(finding,))
    compiled = replace(found, live={"torch": {"compiled": True}})

    assert [applies(report).is_yes for report in (bare, found, compiled)] == [False, True, False]


@pytest.mark.usefixtures("quick")
def test_where_the_model_is_compiled_as_well_a_graph_ends_before_attention_and_another_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real: Any = torch.compile
    monkeypatch.setattr(torch, "compile", lambda call, mode: real(call, backend="aot_eager"))
    kernels: list[bool] = []
    monkeypatch.setattr(nn.functional, _KERNEL, lambda *args, **kwargs: kernels.append(True) or _real(*args, **kwargs))
    torch.manual_seed(0)
    model, bare = Net(), Net()
    bare.load_state_dict(model.state_dict())
    plain = _train(bare, site_for("attention.fused", True), 40)
    torch._dynamo.reset()

    with applied("attention.fused") as site, applied("compile.model", "default") as other:
        site.values["compile.model"] = "default"
        with steps_told_to(other):
            losses = _train(model, site, 40)
            before = len(kernels)
            model(_batch())

        assert len(kernels) - before == 2
        assert site.in_force and other.in_force, (reason(site), reason(other))
        assert site.live["since_step"] == 6 and other.live["since_step"] >= 16
        assert (site.live["attentions"], "left_alone" in site.live) == (2, False)
        assert torch._dynamo.utils.counters["frames"]["ok"] > 0
    assert losses == pytest.approx(plain, rel=1e-4)
    torch._dynamo.reset()

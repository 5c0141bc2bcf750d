"""Attention as scripts write it by hand, in the styles of well-known projects. Each takes (batch, tokens, width)."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, HEADS, TOKENS = 32, 4, 16


class Projected(nn.Module):
    """Queries, keys and values of four heads, and what mixes the result."""

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.drop = nn.Dropout(p)
        self.scale = (WIDTH // HEADS) ** -0.5

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    def projected(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        context = x if context is None else context
        return self.split(self.q(x)), self.split(self.k(context)), self.split(self.v(context))

    def mixed(self, out: Tensor) -> Tensor:
        mixed: Tensor = self.o(out.transpose(1, 2).reshape(out.shape[0], -1, WIDTH))
        return mixed


class NanoGPT(nn.Module):
    bias: Tensor

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.attn_dropout = nn.Dropout(p)
        self.register_buffer("bias", torch.tril(torch.ones(2 * TOKENS, 2 * TOKENS)).view(1, 1, 2 * TOKENS, -1))

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(WIDTH, dim=2)
        k = k.view(B, T, HEADS, C // HEADS).transpose(1, 2)
        q = q.view(B, T, HEADS, C // HEADS).transpose(1, 2)
        v = v.view(B, T, HEADS, C // HEADS).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        att = self.attn_dropout(att)
        y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        out: Tensor = self.c_proj(y)
        return out


class Bert(Projected):
    """An additive mask that comes with the batch."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            mask = torch.ones(x.shape[:2])
        extended = (1.0 - mask[:, None, None, :]) * -10000.0
        q, k, v = self.projected(x)
        scores = torch.matmul(q, k.transpose(-1, -2))
        scores = scores / math.sqrt(WIDTH // HEADS)
        scores = scores + extended
        probs = self.drop(nn.functional.softmax(scores, dim=-1))
        context = torch.matmul(probs, v).permute(0, 2, 1, 3).contiguous()
        out: Tensor = self.o(context.view(*context.size()[:-2], WIDTH))
        return out


class Timm(nn.Module):
    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.attn_drop = nn.Dropout(p)

    def forward(self, x: Tensor) -> Tensor:
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, HEADS, C // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        attn = q @ k.transpose(-2, -1) * (C // HEADS) ** -0.5
        attn = attn.softmax(dim=-1)
        attn = self.attn_drop(attn)
        x = (attn @ v).transpose(1, 2).reshape(B, N, C)
        out: Tensor = self.proj(x)
        return out


class Einsum(Projected):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projected(x)
        sim = torch.einsum("bhid,bhjd->bhij", q * self.scale, k)
        out = torch.einsum("b h i j, b h j d -> b h i d", sim.softmax(dim=-1), v)
        return self.mixed(out)


class EinsumHeadsLater(Projected):
    """Heads behind positions, as in JAX."""

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (HEADS, -1))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projected(x)
        weights = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", [q, k]) * self.scale, dim=-1)
        out: Tensor = self.o(torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2))
        return out


class EinsumScoresByQuery(EinsumHeadsLater):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projected(x)
        scores = torch.einsum("bqhd,bkhd->bqhk", q, k) * self.scale
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        weights = scores.masked_fill(mask[None, :, None, :], -1e9).softmax(3)
        out: Tensor = self.o(torch.einsum("bqhk,bkhd->bqhd", weights, v).flatten(2))
        return out


class EinsumEllipsis(Projected):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projected(x)
        dots = torch.einsum("... i d, ... j d -> ... i j", q, k) * self.scale
        return self.mixed(torch.einsum("... i j, ... j d -> ... i d", self.drop(dots.softmax(-1)), v))


class OneKeyHead(Projected):
    """All heads look for the same keys and values."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projected(x)
        weights = (torch.einsum("bhid,bjd->bhij", q, k[:, 0]) * self.scale).softmax(-1)
        return self.mixed(torch.einsum("bhij,bjd->bhid", weights, v[:, 0]))


class Fairseq(Projected):
    """Batch and heads in one dimension, which is split for the mask."""

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        batch, tokens, _ = x.shape
        q, k, v = (part.reshape(batch * HEADS, tokens, -1) for part in self.projected(x))
        weights = torch.bmm(q * self.scale, k.transpose(1, 2))
        if padding is not None:
            weights = weights.view(batch, HEADS, tokens, tokens)
            weights = weights.masked_fill(padding[:, None, None, :], float("-inf"))
            weights = weights.view(batch * HEADS, tokens, tokens)
        weights_float = F.softmax(weights, dim=-1, dtype=torch.float32)
        weights = self.drop(weights_float.type_as(weights))
        return self.mixed(torch.bmm(weights, v).view(batch, HEADS, tokens, -1))


class Cross(Projected):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projected(x, torch.cat([x, x.flip(1)[:, :5]], dim=1))
        return self.mixed((q.div(math.sqrt(q.shape[-1])) @ k.mT).softmax(-1) @ v)


class Swin(Projected):
    """A trained bias, and a mask for each window of an image."""

    mask: Tensor

    def __init__(self, p: float = 0.0) -> None:
        super().__init__(p)
        self.table = nn.Parameter(0.1 * torch.randn(2 * TOKENS - 1, HEADS))
        differ = torch.arange(2)[:, None, None] * (torch.arange(TOKENS)[:, None] > torch.arange(TOKENS) + 9)
        self.register_buffer("mask", differ * -100.0)

    def forward(self, x: Tensor) -> Tensor:
        windows, n, _ = x.shape
        q, k, v = self.projected(x)
        attn = (q * self.scale) @ k.transpose(-2, -1)
        index = torch.arange(n)[:, None] - torch.arange(n) + TOKENS - 1
        bias = self.table[index.view(-1)].view(n, n, HEADS).permute(2, 0, 1).contiguous()
        attn = attn + bias.unsqueeze(0)
        count = self.mask.shape[0]
        attn = attn.view(windows // count, count, HEADS, n, n) + self.mask[:, :n, :n].unsqueeze(1).unsqueeze(0)
        attn = self.drop(attn.view(-1, HEADS, n, n).softmax(dim=-1))
        return self.mixed(attn @ v)


class Diffusion(Projected):
    """One head over the pixels of an image, and the weights turned for the second product."""

    def forward(self, x: Tensor) -> Tensor:
        q = self.q(x)
        k, v = self.k(x).permute(0, 2, 1), self.v(x).permute(0, 2, 1)
        w_ = torch.bmm(q, k)
        w_ = w_ * (int(WIDTH) ** (-0.5))
        w_ = torch.nn.functional.softmax(w_, dim=2)
        w_ = w_.permute(0, 2, 1)
        h_ = torch.bmm(v, w_)
        out: Tensor = self.o(h_.permute(0, 2, 1))
        return out


class GPT2(Projected):
    """Numbers in tensors of one element."""

    bias: Tensor

    def __init__(self, p: float = 0.0) -> None:
        super().__init__(p)
        self.register_buffer("bias", torch.tril(torch.ones(TOKENS, TOKENS, dtype=torch.bool))[None, None])

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projected(x)
        weights = torch.matmul(q, k.transpose(-1, -2))
        weights = weights / torch.full([], v.size(-1) ** 0.5, dtype=weights.dtype, device=weights.device)
        lowest = torch.finfo(weights.dtype).min
        lowest = torch.full([], lowest, dtype=weights.dtype, device=weights.device)  # type: ignore[assignment]
        causal = self.bias[:, :, : x.shape[1], : x.shape[1]]
        weights = torch.where(causal, weights.to(weights.dtype), lowest)
        weights = nn.functional.softmax(weights, dim=-1).type(v.dtype)
        return self.mixed(torch.matmul(self.drop(weights), v))


class Bloom(Projected):
    """A bias that the product itself adds."""

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        q, k, v = (part.reshape(batch * HEADS, tokens, -1) for part in self.projected(x))
        slopes = torch.tensor([2.0**-n for n in range(HEADS)]).repeat(batch)
        alibi = slopes[:, None, None] * torch.arange(tokens).expand(batch * HEADS, tokens, tokens)
        scores = alibi.baddbmm(q, k.transpose(1, 2), beta=1.0, alpha=self.scale).view(batch, HEADS, tokens, tokens)
        later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, torch.finfo(scores.dtype).min)
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(x.dtype).view(batch * HEADS, tokens, tokens)
        return self.mixed(torch.bmm(weights, v).view(batch, HEADS, tokens, -1))


class Cosine(Projected):
    """Each head has a temperature that is trained."""

    def __init__(self, p: float = 0.0) -> None:
        super().__init__(p)
        self.temperature = nn.Parameter(torch.linspace(1.0, 3.0, HEADS).view(HEADS, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projected(x)
        scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1) * self.temperature
        return self.mixed(self.drop(scores.softmax(-1)) @ v)


class AddedTriangle(Projected):
    """A causal mask that is made anew in every call."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projected(x)
        tokens = x.shape[1]
        mask = torch.full((tokens, tokens), float("-inf"), device=x.device).triu(1)
        return self.mixed((q @ k.transpose(-2, -1) * self.scale + mask).softmax(-1) @ v)


class Added(Projected):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.projected(x)
        scores = q @ k.transpose(-2, -1) * self.scale
        scores = scores + torch.zeros(x.shape[1], dtype=x.dtype) if mask is None else scores + mask
        return self.mixed(scores.softmax(-1) @ v)


class InPlace(Projected):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projected(x)
        scores = q @ k.transpose(-2, -1)
        scores /= math.sqrt(q.shape[-1])
        scores += torch.zeros(x.shape[1], x.shape[1]).fill_diagonal_(0.5)
        scores.masked_fill_(torch.zeros_like(scores, dtype=torch.bool).triu_(2), float("-inf"))
        weights = F.dropout(scores.softmax(-1), self.drop.p, self.training)
        return self.mixed(weights @ v)


class Textbook(Projected):
    """Scores in float32, whatever the rest is in; a mask in which rows may be masked as a whole."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.projected(x)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if mask is None:
            mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool)
        scores = scores.float().masked_fill(~mask, float("-inf"))
        weights = F.softmax(scores, dim=-1)
        return self.mixed(weights.to(v.dtype) @ v)


class Annotated(Projected):
    """A mask in which rows may be masked as a whole, by something finite."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.projected(x)
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9 if scores.dtype is not torch.float16 else -6e4)
        return self.mixed(self.drop(scores.softmax(dim=-1)) @ v)


class TwoTerms(Projected):
    """A second product is added to the first, as relative positions are."""

    def __init__(self, p: float = 0.0) -> None:
        super().__init__(p)
        self.positions = nn.Parameter(torch.randn(TOKENS, WIDTH // HEADS))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projected(x)
        content = torch.matmul(q, k.transpose(-2, -1))
        position = torch.matmul(q, self.positions[: x.shape[1]].t())
        return self.mixed(((content + position) * self.scale).softmax(-1) @ v)


class DotProduct(nn.Module):
    """The attention as a module of its own, without weights."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v


class AroundDotProduct(Projected):
    """Lays out what comes back as only the script's own product allows."""

    def __init__(self, p: float = 0.0) -> None:
        super().__init__(p)
        self.attend = DotProduct()

    def forward(self, x: Tensor) -> Tensor:
        out = self.attend(*self.projected(x))
        return self.mixed(out.view(out.shape[0] * HEADS, -1).view_as(out))


STYLES: list[Any] = [
    NanoGPT, Bert, Timm, Einsum, EinsumHeadsLater, EinsumScoresByQuery, EinsumEllipsis, OneKeyHead, Fairseq, Cross,
    Swin, Diffusion, GPT2, Bloom, Cosine, AddedTriangle, Added, InPlace, Textbook, Annotated, TwoTerms,
]  # fmt: skip


# Such that have to be left alone.


class Returns(Projected):
    """The weights as well."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = self.projected(x)
        weights = (q @ k.transpose(-2, -1)).softmax(-1)
        return self.mixed(weights @ v), weights


class Keeps(Projected):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projected(x)
        self.weights = (q @ k.transpose(-2, -1)).softmax(-1)
        return self.mixed(self.weights @ v)


class TalkingHeads(Projected):
    """Weights of one head go into another."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projected(x)
        weights = (q @ k.transpose(-2, -1)).softmax(-1)
        return self.mixed((weights + weights.flip(1)) @ v)


class Penalised(Projected):
    """The entropy of the weights is a part of the loss."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projected(x)
        weights = (q @ k.transpose(-2, -1)).softmax(-1)
        return self.mixed(weights @ v) + 0.01 * (weights * (weights + 1e-9).log()).sum()


class Renormalised(Projected):
    """A softmax that is spelled out."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projected(x)
        scores = (q @ k.transpose(-2, -1)).exp()
        return self.mixed(scores / scores.sum(-1, keepdim=True) @ v)


class SlightMask(Projected):
    """What is filled in is not low enough to be nothing."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projected(x)
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return self.mixed((q @ k.transpose(-2, -1)).masked_fill(later, -3.0).softmax(-1) @ v)


class LinearAttention(Projected):
    """The softmax goes over something else than keys."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projected(x)
        return self.mixed(q.softmax(-1) @ (k.softmax(-2).transpose(-2, -1) @ v))


LEFT_ALONE: list[Any] = [Returns, Keeps, TalkingHeads, Penalised, Renormalised, SlightMask, LinearAttention]

"""Patterns in the text of a training: its precision, and the kind of model it computes."""

from __future__ import annotations

from flatout.source.training.jobs import TrainingJob, text_pattern

# Half precision in any form; a script that offers it as an option has considered it.
HALF = text_pattern(
    r"autocast|GradScaler|\bamp\b|\bapex\b|_amp\b|\bamp_|\bAMP\b|[fF][pP]_?16|[bB][fF]16|float16|FLOAT16"
    r"|mixed_precision|half_precision|\.half\(|\bload_in_[48]bit",
    "autocast", "GradScaler", "amp.", "amp_", "_amp", " amp", "-amp", ".amp", "(amp", '"amp', "'amp", "AMP",
    "apex", "p16", "p_16", "P16", "f16", "F16", "float16", "FLOAT16", "mixed_precision",
    "half_precision", ".half(", "load_in_",
)  # fmt: skip
# The precision of float32 products is set.
DECIDED = text_pattern(
    r"set_float32_matmul_precision|allow_tf32|fp32_precision|\btf32\b|TF32_OVERRIDE",
    "set_float32_matmul_precision", "tf32", "fp32_precision", "TF32_OVERRIDE",
)  # fmt: skip
# Results that need more than float32 do not allow less.
WIDE = text_pattern(
    r"torch\.(float64|double|complex\d+)\b|\.double\(\)|set_default_dtype|DoubleTensor",
    "torch.float64", "torch.double", "torch.complex", ".double()", "set_default_dtype", "DoubleTensor",
)  # fmt: skip
_CONVOLUTIONS = text_pattern(
    r"\bConv2d\(|\bConvTranspose2d\(|torchvision\.models|\bresnet\w*\(|\bsmp\.|efficientnet",
    "Conv2d(", "ConvTranspose2d(", "torchvision.models", "resnet", "smp.", "efficientnet",
)  # fmt: skip
_PRODUCTS = text_pattern(
    r"[aA]ttention|[tT]ransformer|\bLSTM\b|\bGRU\b|einsum|\bbmm\b|matmul|\.mm\(|\bBert|\bGPT|diffusers|\bvit_",
    "ttention", "ransformer", "LSTM", "GRU", "einsum", "bmm", "matmul", ".mm(", "Bert", "GPT", "diffusers", "vit_",
)  # fmt: skip
_LINEAR = text_pattern(r"\bLinear\(", "Linear(")
# Reinforcement learning: networks are small, and a step is bound by launches, not by products.
_AGENT = text_pattern(
    r"\bgym(nasium)?\b|\benvs?\.(step|reset)\(|[rR]eplay_?[bB]uffer|rollout_buffer",
    "gym", "env.", "envs.", "eplay", "rollout_buffer",
)  # fmt: skip


def is_agent_training(job: TrainingJob) -> bool:
    return job.says(_AGENT)


def has_large_products(job: TrainingJob) -> bool:
    """Are there matrix products beside the last layer of a convolutional network? Convolutions use TF32 by default."""
    return job.says(_PRODUCTS) or (job.says(_LINEAR) and not job.says(_CONVOLUTIONS))

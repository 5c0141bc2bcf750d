"""What a training's text says about the numbers it computes with, and about what it computes."""

from __future__ import annotations

import ast

from flatout.records.source import Edit
from flatout.source.module import Module
from flatout.source.whole import Whole, saying

# Half precision in any form; a script that only offers it as an option has thought of it.
HALF = saying(
    r"autocast|GradScaler|\bamp\b|\bapex\b|_amp\b|\bamp_|\bAMP\b|[fF][pP]_?16|[bB][fF]16|float16|FLOAT16"
    r"|mixed_precision|half_precision|\.half\(|\bload_in_[48]bit",
    "autocast", "GradScaler", "amp.", "amp_", "_amp", " amp", "-amp", ".amp", "(amp", '"amp', "'amp", "AMP",
    "apex", "p16", "p_16", "P16", "f16", "F16", "float16", "FLOAT16", "mixed_precision",
    "half_precision", ".half(", "load_in_",
)  # fmt: skip
# Somebody has decided how float32 products are made.
DECIDED = saying(
    r"set_float32_matmul_precision|allow_tf32|fp32_precision|\btf32\b|TF32_OVERRIDE",
    "set_float32_matmul_precision", "tf32", "fp32_precision", "TF32_OVERRIDE",
)  # fmt: skip
# Results that need more than float32 will not do with less.
WIDE = saying(
    r"torch\.(float64|double|complex\d+)\b|\.double\(\)|set_default_dtype|DoubleTensor",
    "torch.float64", "torch.double", "torch.complex", ".double()", "set_default_dtype", "DoubleTensor",
)  # fmt: skip
_CONVOLUTIONS = saying(
    r"\bConv2d\(|\bConvTranspose2d\(|torchvision\.models|\bresnet\w*\(|\bsmp\.|efficientnet",
    "Conv2d(", "ConvTranspose2d(", "torchvision.models", "resnet", "smp.", "efficientnet",
)  # fmt: skip
_PRODUCTS = saying(
    r"[aA]ttention|[tT]ransformer|\bLSTM\b|\bGRU\b|einsum|\bbmm\b|matmul|\.mm\(|\bBert|\bGPT|diffusers|\bvit_",
    "ttention", "ransformer", "LSTM", "GRU", "einsum", "bmm", "matmul", ".mm(", "Bert", "GPT", "diffusers", "vit_",
)  # fmt: skip
_LINEAR = saying(r"\bLinear\(", "Linear(")
# An agent's networks are small: their step is launches, however fast the products are.
_AGENT = saying(
    r"\bgym(nasium)?\b|\benvs?\.(step|reset)\(|[rR]eplay_?[bB]uffer|rollout_buffer",
    "gym", "env.", "envs.", "eplay", "rollout_buffer",
)  # fmt: skip


def is_of_an_agent(whole: Whole) -> bool:
    return whole.says(_AGENT)


def has_large_products(whole: Whole) -> bool:
    """Matrix products other than a convolutional network's last layer: convolutions may use TF32 as it is."""
    return whole.says(_PRODUCTS) or (whole.says(_LINEAR) and not whole.says(_CONVOLUTIONS))


def behind_imports(module: Module, statement: str) -> Edit | None:
    """The statement on a line of its own behind the imports that a script begins with; None if it is no script."""
    is_script = "__main__" in module.text or any(isinstance(one, ast.For | ast.While) for one in module.tree.body)
    if not is_script:
        return None
    last: ast.stmt | None = None
    has_torch = False
    for one in module.tree.body:
        if isinstance(one, ast.Import | ast.ImportFrom):
            last = one
            has_torch |= isinstance(one, ast.Import) and any(
                name.name.split(".")[0] == "torch" and (name.asname is None or name.name == name.asname)
                for name in one.names
            )
        elif not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)):
            break
    if last is None or not has_torch or _shares_a_line(module, last):
        return None
    line = last.end_lineno or last.lineno
    return Edit(module.at(line, len(module.lines[line - 1].rstrip("\r")) + 1), f"\n\n{statement}")


def _shares_a_line(module: Module, statement: ast.stmt) -> bool:
    end = statement.end_lineno or statement.lineno
    return any(one is not statement and one.lineno == end for one in module.tree.body)

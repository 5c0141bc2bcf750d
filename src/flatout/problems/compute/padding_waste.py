"""Much of what the model computes is padding.

What it is: sequences of different lengths are padded to one length, that of the longest or a fixed maximum, and the
model computes the padding as well.

Why the GPU idles: it does not; as much of its work is wasted as there is padding.

How it shows in a run: some batches are inspected as they come from the loader: an attention mask, rows of token ids
that end in the same value, or rows of frames (speech, a time series, points) that end in frames of one value, with the
lengths that may come beside them. The autograd graph of the same step shows that the model computed at the padded
length, or at that length divided by the stride of its first layers.

How it shows in source: `padding="max_length"` reaches a tokenizer of a training, or a dataset pads each of its samples
to a fixed length itself: `ids + [0] * (self.max_len - len(ids))`.

The fix: pad to the longest of the batch and not to a fixed maximum; make batches of sequences of about the same
length (a batch sampler that sorts within chunks of a few hundred; `group_by_length=True` in Hugging Face's Trainer);
or pack several sequences into one row.

What to expect: forward and backward shrink with the positions computed, attention more than that. How far sorting gets
is estimated from the lengths seen in this run.

When it is fine: less than a quarter of the positions, or a model that leaves padding out itself (packed sequences,
variable-length attention).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from flatout.model.edits import Edits, LessStep
from flatout.problems.compute.device import gpu_passes_ms, is_gpu_bound
from flatout.problems.found import FoundInRun, FoundInSource, where_written
from flatout.records.evidence import Evidence, Padding
from flatout.records.message import message
from flatout.records.source import Related
from flatout.source.code import Code
from flatout.source.flow.guards import is_evaluation
from flatout.source.flow.values import Value
from flatout.source.syntax.module import Function, Module, own_nodes
from flatout.source.syntax.nodes import argument, called_name, dotted_name, is_call
from flatout.source.training.jobs import nearby_modules

CODE = "CO507"
_MUCH = 0.25
# Passes must take most of the step, and the model must have been seen to compute at the padded length.
_BIND, _COMPUTED = 0.5, 0.5
# A GPU that is filled less takes as long for fewer places.
_FILLED = 0.25
# Of what the change saves by the lengths seen, what it saves at least: small operations take as long for fewer places.
_CAUTIOUS = 0.5
# Trimming alone is proposed where no more than this is left of what is computed.
_MOSTLY = 0.95
_LEAVES_IT_OUT = re.compile(
    r"pack_padded_sequence|pack_sequence|cu_seqlens|varlen|unpad|torch\.nested|\bnested_tensor\(|DataCollatorWithFlattening"
)


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    padding = run.padding
    if padding is None or padding.share < _MUCH or padding.computed_share < _COMPUTED or not _passes_bind(run):
        return
    if any(_LEAVES_IT_OUT.search(text) for text in run.files.values()):
        return
    use, trims = run.training_loader, _trims(padding)
    yield FoundInRun(
        location=None if use is None else use.made_at,
        evidence={
            "padding_share": round(padding.share, 3),
            "padding_share_if_trimmed": round(padding.share_if_trimmed, 3),
            "padding_share_if_sorted": round(padding.share_if_sorted, 3),
            "length": round(padding.length, 1),
            "rows_looked_at": padding.rows,
            "passes_ms_per_step": round(_passes_ms(run), 2),
        },
        cause=message(
            "co507.cause",
            share=padding.share,
            length=padding.length,
            kind=padding.kind,
            passes_ms=_passes_ms(run),
            step_ms=run.step_ms,
        ),
        change=message("co507.change_trim" if trims else "co507.change"),
        edits=_edits(run, padding),
    )


def _passes_ms(run: Evidence) -> float:
    return gpu_passes_ms(run) if run.on_gpu else run.phase("forward").ms + run.phase("backward").ms


def _passes_bind(run: Evidence) -> bool:
    gpu = run.report.gpu
    if run.on_gpu and (not is_gpu_bound(run) or gpu is None or (gpu.sm_active is not None and gpu.sm_active < _FILLED)):
        return False
    return _passes_ms(run) >= _BIND * run.step_ms


def _trims(padding: Padding) -> bool:
    """Is it enough to say that each batch is to be padded to its own longest sequence?"""
    return (1 - padding.share) / (1 - padding.share_if_trimmed) < _MOSTLY


def _edits(run: Evidence, padding: Padding) -> Edits:
    """What the change saves that is proposed; at best sorted batches as well, or no padding at all."""
    text, trims = 1 - padding.share, _trims(padding)
    trimmed, in_order = (text / (1 - share) for share in (padding.share_if_trimmed, padding.share_if_sorted))
    left = (trimmed, in_order) if trims else (in_order, text)
    parts = (_CAUTIOUS * (1 - left[0]), 1 - left[0], 1 - left[1])
    return Edits.between((LessStep(_passes_ms(run) * part),) for part in parts)


# Where the sequences of a training are filled up to one fixed length.

_TOKENIZER = re.compile(r"token|\btok\b|encode_plus|processor", re.I)
# Text that a frozen model is conditioned on has the length that model was made for.
_CONDITIONED = ("diffusers", "CLIPTokenizer", "CLIPText", "xla_model", "torch_xla", "tensorflow")
_ASIDE = re.compile(r"metric|eval|infer|condition|serv|demo", re.I)
_FILLING = re.compile(r"-\s*(len\(|\w+\.(shape|size)|\w*length)")
# What CLIP and its like were trained with: their text is that short.
_SHORT = 77
_LENGTH = re.compile(
    r"^(self\.)?(\w+\.)*_?(max_?(seq|len|tok|src|tgt|text|input|target|sent|word|source)\w*|seq(uence)?_?len(gth)?|maxlen)$",
    re.I,
)


@dataclass(frozen=True, slots=True)
class FixedPadding:
    """`node` is what fills up; `value` is the setting that makes it so, where there is one."""

    function: Function
    node: ast.AST
    value: Value | None
    length: str


def find_padding(code: Code) -> Iterator[FixedPadding]:
    modules = {id(m): m for job in code.jobs if job.is_on_gpu for m in nearby_modules(job)}
    for module in modules.values():
        text = module.text
        if _ASIDE.search(module.shown) or any(word in text for word in _CONDITIONED):
            continue
        if "max_length" in text and "pad" in text:
            yield from _by_tokenizer(module, code)
        if "def __getitem__" in text and ("max" in text or "len" in text) and _FILLING.search(text):
            yield from _by_hand(module, code)


def _by_tokenizer(module: Module, code: Code) -> Iterator[FixedPadding]:
    for function in module.functions:
        if is_evaluation(function.name):
            continue
        for call in function.calls:
            # The second is how it was written before transformers 3.
            given = argument(call, "padding") or argument(call, "pad_to_max_length")
            if given is None or not _TOKENIZER.search(f"{dotted_name(call.func)} {called_name(call)}"):
                continue
            value = code.values.of(given, function)
            wanted = "max_length" if argument(call, "padding") is not None else True
            if value is not None and value.value == wanted:
                length = argument(call, "max_length")
                known = code.values.of(length, function) if length is not None else None
                if known is not None and known.value == _SHORT:
                    continue
                yield FixedPadding(function, given, value, "" if length is None else ast.unparse(length))


def _by_hand(module: Module, code: Code) -> Iterator[FixedPadding]:
    """`ids + [0] * (self.max_len - len(ids))` in what makes a sample of a dataset."""
    for function in module.functions:
        owner = function.owner
        if owner is None or not code.project.is_a(owner, "Dataset") or is_evaluation(owner.name):
            continue
        for node in own_nodes(function):
            lacking = _fill(node)
            if lacking is not None and _is_fixed(lacking, function):
                yield FixedPadding(function, node, None, ast.unparse(lacking))
                break


def _fill(node: ast.AST) -> ast.expr | None:
    """The length up to which an expression fills."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for side, other in ((node.left, node.right), (node.right, node.left)):
            if isinstance(side, ast.List) and len(side.elts) == 1:
                return _padded_length(other)
    if is_call(node, "pad") and len(node.args) >= 2:
        found = (_padded_length(part) for part in ast.walk(node.args[1]))
        return next((length for length in found if length is not None), None)
    return None


def _padded_length(node: ast.AST) -> ast.expr | None:
    """`length` of `length - len(x)`, `length - x.shape[0]`, `length - x.size(0)`."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub):
        return None
    there = ast.unparse(node.right)
    return node.left if re.search(r"\blen\(|\.shape\[|\.size\(|length", there) else None


def _is_fixed(length: ast.expr, function: Function) -> bool:
    """A setting: of the dataset, of the module; not the longest of a batch."""
    name = dotted_name(length)
    if not name or not _LENGTH.search(name) or name in function.bindings:
        return False
    return "." in name or name.isupper() or name in function.parameters


def in_source(code: Code) -> Iterator[FoundInSource]:
    """One for each file: a library pads in the same way wherever it does."""
    by_file: dict[str, list[FixedPadding]] = {}
    for padded in find_padding(code):
        if not _LEAVES_IT_OUT.search(padded.function.module.text):
            by_file.setdefault(padded.function.module.shown, []).append(padded)
    for first, *others in by_file.values():
        here, value = first.function.module.place(first.node), first.value
        written, related = where_written(value, here, "related.reaches_tokenizer")
        filled = (
            message("co507.source_cause_length", length=first.length) if first.length else message("co507.source_cause")
        )
        yield FoundInSource(
            place=written,
            cause=filled,
            change=message("co507.source_change" if value is None else "co507.source_change_tokenizer"),
            severity="low" if value is None else "medium",
            related=(
                *related,
                *(Related(other.function.module.place(other.node), message("related.and_here")) for other in others),
            ),
        )

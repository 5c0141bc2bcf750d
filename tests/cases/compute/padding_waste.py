"""Runs and code that have CO507, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import Padding
from flatout.records.message import message
from tests.cases.code import SourceCase
from tests.cases.evidence import Case, on_gpu, run

_ZEROS = message("padding.value", value=0)
_HALF_EMPTY = Padding(3, 96, 512.0, 0.55, 0.35, 0.08, _ZEROS, 1.0)
_FRAMES = Padding(3, 36, 300.0, 0.55, 0.1, 0.02, message("padding.frames", value=0.0), 1.0)
_TOLD = Padding(3, 36, 300.0, 0.55, 0.1, 0.02, message("padding.told"), 1.0)
CASES = (
    Case("finds it when half of the tokens are padding on a CPU", run(padding=_HALF_EMPTY), found=True),
    Case("finds it in frames of features", run(padding=_FRAMES), found=True),
    Case("finds it by the lengths that come with the batch", run(gpu=on_gpu(), padding=_TOLD), found=True),
    Case("finds it on a GPU", run(gpu=on_gpu(), padding=_HALF_EMPTY), found=True),
    Case(
        "quiet when there is little padding",
        run(padding=Padding(3, 96, 80.0, 0.15, 0.15, 0.03, _ZEROS, 1.0)),
        found=False,
    ),
    Case(
        "quiet when the model cuts it off",
        run(padding=Padding(3, 96, 512.0, 0.55, 0.35, 0.08, _ZEROS, 0.0)),
        found=False,
    ),
    Case(
        "quiet when sequences are packed",
        run(padding=_HALF_EMPTY, files={"train.py": "packed = pack_padded_sequence(x, lengths)"}),
        found=False,
    ),
    Case("quiet when the host binds", run(gpu=on_gpu(drained_share=0.6), padding=_HALF_EMPTY), found=False),
    Case(
        "quiet when loading takes the time",
        run(ms={"data": 60.0, "forward": 15.0, "backward": 22.0, "optimizer": 3.0}, padding=_HALF_EMPTY),
        found=False,
    ),
)

_LOOP = """
for batch in loader:
    loss = model(**batch.to("cuda")).loss
    loss.backward()
    optimizer.step()
"""
_BY_HAND = """
class Sentences(Dataset):
    def __getitem__(self, at):
        ids = self.ids[at]
        return torch.tensor(ids + [0] * (self.max_len - len(ids)))%s
"""
_COLLATE = """
def collate(rows):
    max_len = max(len(row) for row in rows)
    return torch.tensor([row + [0] * (max_len - len(row)) for row in rows])
"""
_OPTION = """
parser.add_argument("--pad", default=%s)
padding = "max_length" if args.pad else "longest"%s
def prepare(examples):
    return tokenizer(examples["text"], padding=padding, truncation=True)
"""
SOURCE_CASES = (
    SourceCase(
        "finds it when a tokenizer pads to the maximum",
        'def prepare(x):\n    return tokenizer(x["text"], padding="max_length", max_length=512)  # found\n' + _LOOP,
    ),
    SourceCase("finds it when a setting makes it do so", _OPTION % ("True", "  # found") + _LOOP),
    SourceCase("finds it when a dataset does it by hand", _BY_HAND % "  # found" + _LOOP),
    SourceCase(
        "finds it beside a Trainer",
        "from transformers import Trainer, TrainingArguments\n"
        'rows = rows.map(lambda x: x)\ndef encode(x):\n    return tok(x, padding="max_length")  # found\n'
        "arguments = TrainingArguments('out')\nTrainer(model, arguments).train()\n",
    ),
    SourceCase(
        "quiet when it pads to the longest",
        'rows = tokenizer(x, padding=True)\nmore = tokenizer(x, padding="longest")\n' + _LOOP,
    ),
    SourceCase("quiet when the setting is off", _OPTION % ("False", "") + _LOOP),
    SourceCase("quiet when the collate function pads", _COLLATE + _LOOP),
    SourceCase("quiet when it evaluates", 'def predict(x):\n    return tokenizer(x, padding="max_length")\n' + _LOOP),
    SourceCase("quiet when nothing trains here", 'rows = tokenizer(x, padding="max_length")\nmodel(rows.cuda())\n'),
)

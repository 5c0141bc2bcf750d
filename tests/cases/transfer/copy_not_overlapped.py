"""Runs and code that have TR204, and that must stay quiet."""

from __future__ import annotations

from flatout.records.report import CopySite
from tests.cases.code import SourceCase
from tests.cases.evidence import HERE, Case, on_gpu, run

_MS = {"data": 1.0, "h2d": 20.0, "forward": 30.0, "backward": 40.0, "optimizer": 8.0, "other": 1.0}
_GPU = on_gpu(util_mean=72.0, drained_share=0.4)
_BLOCKING = CopySite(HERE, "train", 2.0, 20.0, 38.0 * 2**20, 1.0, 0.0)
CASES = (
    Case("finds it when the copy waits for the step before", run(gpu=_GPU, ms=_MS, copies=(_BLOCKING,)), found=True),
    Case(
        "quiet when the copy does not block",
        run(gpu=_GPU, ms={**_MS, "h2d": 0.1}, copies=(CopySite(HERE, "train", 2.0, 0.1, 38.0 * 2**20, 1.0, 1.0),)),
        found=False,
    ),
    Case(
        "quiet when the device is busy all the same",
        run(gpu=on_gpu(drained_share=0.0), ms=_MS, copies=(_BLOCKING,)),
        found=False,
    ),
)

_STEP = """
loader = DataLoader(Images(), 32, num_workers=4, pin_memory=True)
for images, labels in loader:
    images = images.to(device)  # found
    labels = labels.cuda()  # found
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
"""
_IN_A_LINE = _STEP.replace(
    "    images = images.to(device)  # found\n    labels = labels.cuda()  # found\n",
    "    images, labels = images.to(device), labels.to(device, non_blocking=False)  # found\n",
)
_TUPLE = """
def move(batch, device):
    return {name: value.to(device) for name, value in batch.items()}  # found

def train(loader):
    for batch in loader:
        batch = move(batch, device)
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
"""
_OWN_BATCH = """
class Nested:
    def to(self, device):
        return Nested(self.tensors.to(device))

def train(loader):
    for samples, targets in loader:
        samples = samples.to(device)  # found
        loss = criterion(model(samples), targets)
        loss.backward()
        optimizer.step()
"""


def _changed_labels(name: str, line: str, found: bool = False) -> SourceCase:
    """The labels of a batch, changed before they are copied."""
    text = _STEP.replace("to(device)  # found", "to(device, non_blocking=True)").replace(
        "    labels = labels.cuda()", f"    {line}\n    labels = labels.cuda()"
    )
    return SourceCase(name, text if found else text.replace("  # found", ""))


SOURCE_CASES = (
    SourceCase("finds it when each tensor of the batch is moved with a wait", _STEP),
    SourceCase("finds it once when a line moves both", _IN_A_LINE),
    SourceCase("finds it in a helper that moves a batch", _TUPLE),
    SourceCase("finds it, and knows no fix, where a batch of the project's own is moved", _OWN_BATCH),
    SourceCase(
        "finds it in what is done to each part",
        "for batch in DataLoader(Images(), 32, pin_memory=True):\n"
        "    batch = tree_map(lambda one: one.to(device), batch)  # found\n"
        "    model(batch).backward()\n"
        "    optimizer.step()\n",
    ),
    _changed_labels("finds it when only the shape is another", "labels = labels.squeeze(1)", found=True),
    _changed_labels("quiet when the step made it", "labels = smooth(labels, 0.1)"),
    _changed_labels("quiet when the step converted it", "labels = labels.long()"),
    _changed_labels("quiet when the step cut it out", "labels = labels[:, 0]"),
    _changed_labels("quiet when the step computed it", "labels = labels - 1"),
    SourceCase(
        "quiet when the data were put on a device",
        "data = TensorDataset(table.to(device))\nloader = DataLoader(data, 32)\nfor x in loader:\n"
        "    x = x[0].to(device)\n    model(x).backward()\n    optimizer.step()\n",
    ),
    SourceCase(
        "quiet when the copy does not block",
        _STEP.replace("to(device)  # found", "to(device, non_blocking=True)").replace(
            "cuda()  # found", "cuda(non_blocking=True)"
        ),
    ),
    SourceCase(
        "quiet when a model is moved, or a type changed",
        "model.to(device)\n"
        + _STEP.replace("images.to(device)  # found", "images.to(torch.float16)").replace(
            "labels.cuda()  # found", "labels.long()"
        ),
    ),
    SourceCase(
        "quiet when a result of the model is moved",
        _STEP.replace("    images = images.to(device)  # found\n    labels = labels.cuda()  # found\n", "").replace(
            "model(images), labels", "model(images).to(device), labels"
        ),
    ),
)

"""Runs and code that have HO405, and that must stay quiet."""

from __future__ import annotations

from flatout.records.report import LineCost, Location, SyncSite
from tests.cases.code import SourceCase
from tests.cases.evidence import Case, live_state, on_gpu, run

_ON, _OFF = live_state(anomaly_mode=True), live_state(anomaly_mode=False)
_WITHIN = """\
def training_step(batch):
    with torch.autograd.detect_anomaly():
        loss = model(batch).mean()
        loss.backward()
"""
_BACKWARD = (LineCost(Location("train.py", 4), "training_step", "backward", 0.5, 50.0),)
CASES = (
    Case(
        "finds it on a CPU",
        run(
            ms={"forward": 22.0, "backward": 20.0, "optimizer": 10.0},
            live=_ON,
            files={"train.py": "import torch\ntorch.autograd.set_detect_anomaly(True)\n"},
        ),
        found=True,
    ),
    Case(
        "finds it on a GPU, whose checks are hidden syncs",
        run(
            gpu=on_gpu(util_mean=30.0, drained_share=0.9),
            live=_ON,
            syncs=(SyncSite(Location("train.py", 20), "train", "hidden", 180.0, None),),
        ),
        found=True,
    ),
    Case(
        "finds it when it is on within the step only",
        run(live=_OFF, all_lines=_BACKWARD, files={"train.py": _WITHIN}),
        found=True,
    ),
    Case("quiet when it is off", run(live=_OFF), found=False),
    Case(
        "quiet when a variable switches it, which may be off",
        run(
            live=_OFF,
            all_lines=_BACKWARD,
            files={"train.py": _WITHIN.replace("detect_anomaly()", "set_detect_anomaly(debug)")},
        ),
        found=False,
    ),
    Case("quiet when torch's state is not known", run(live=live_state()), found=False),
)

_TRAINED = """
for batch in loader:
    model(batch).backward()
    optimizer.step()
"""
SOURCE_CASES = (
    SourceCase("finds it when it stayed on", "torch.autograd.set_detect_anomaly(True)  # found\n" + _TRAINED),
    SourceCase(
        "finds it around the backward pass",
        _TRAINED.replace(
            "    model(batch).backward()",
            "    with torch.autograd.detect_anomaly():  # found\n        model(batch).backward()",
        ),
    ),
    SourceCase(
        "finds it by its bare name",
        "import torch\nfrom torch.autograd import detect_anomaly\n"
        + _TRAINED.replace(
            "    model(batch).backward()", "    with detect_anomaly():  # found\n        model(batch).backward()"
        ),
    ),
    SourceCase("finds it where a trainer is told so", "trainer = Trainer(detect_anomaly=True)  # found\n" + _TRAINED),
    SourceCase("quiet when it is turned off", "torch.autograd.set_detect_anomaly(False)\n" + _TRAINED),
    SourceCase(
        "quiet when a debug flag asks for it",
        "if args.debug:\n    torch.autograd.set_detect_anomaly(True)\n" + _TRAINED,
    ),
    SourceCase(
        "quiet when an option asks for it",
        "parser.add_argument('--anomaly', action='store_true')\nargs = parser.parse_args()\n"
        "torch.autograd.set_detect_anomaly(args.anomaly)\n" + _TRAINED,
    ),
)

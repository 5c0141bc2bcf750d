"""How old names of autocast are written today: every argument keeps its meaning, and nothing is touched in doubt."""

from __future__ import annotations

import pytest

from flatout.problems.compute.old_amp_api import find_old_amp
from flatout.records.source import Edit
from flatout.source.project.loading import load_texts


def rewritten(text: str, **others: str) -> str | None:
    """The text with all edits; None if one of the finds has none."""
    files = {"train.py": text, **{f"{name}.py": other for name, other in others.items()}}
    found = [old for old in find_old_amp(load_texts(files)) if old.module.shown == "train.py"]
    if not found or any(finding.edits is None for finding in found):
        return None
    lines = text.split("\n")
    edits = [edit for finding in found for edit in finding.edits or ()]
    for edit in sorted(edits, key=_begins, reverse=True):
        line = lines[edit.place.line - 1]
        end = edit.place.end_column or edit.place.column
        assert edit.place.end_line in (0, edit.place.line)
        lines[edit.place.line - 1] = line[: edit.place.column - 1] + edit.text + line[end - 1 :]
    return "\n".join(lines)


def _begins(edit: Edit) -> tuple[int, int]:
    return edit.place.line, edit.place.column


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch.cuda.amp.autocast()", 'torch.amp.autocast("cuda")'),
        ("torch.cuda.amp.autocast(use_amp)", 'torch.amp.autocast("cuda", enabled=use_amp)'),
        (
            "torch.cuda.amp.autocast(True, torch.float16)",
            'torch.amp.autocast("cuda", enabled=True, dtype=torch.float16)',
        ),
        ("torch.cuda.amp.autocast(enabled=a and b)", 'torch.amp.autocast("cuda", enabled=a and b)'),
        ("torch.cuda.amp.autocast(**settings)", 'torch.amp.autocast("cuda", **settings)'),
        ("torch.cpu.amp.autocast(dtype=d)", 'torch.amp.autocast("cpu", dtype=d)'),
        ("torch.cuda.amp.GradScaler(1024.0, enabled=f(x))", 'torch.amp.GradScaler("cuda", 1024.0, enabled=f(x))'),
        ("torch.cuda.amp.custom_fwd(f, cast_inputs=d)", 'torch.amp.custom_fwd(f, cast_inputs=d, device_type="cuda")'),
    ],
)
def test_a_call_by_its_full_name_keeps_its_arguments(before: str, after: str) -> None:
    assert rewritten(f"import torch\nx = {before}\n") == f"import torch\nx = {after}\n"


def test_an_import_changes_with_all_that_it_serves() -> None:
    before = (
        "from torch.cuda.amp import GradScaler, autocast as cast  # mixed\n"
        "def train(scaler: GradScaler | None = None):\n"
        "    with cast(), open(x) as y:\n"
        "        scaler = GradScaler(\n"
        "            enabled=True,\n"
        "        )\n"
    )
    after = (
        "from torch.amp import GradScaler, autocast as cast  # mixed\n"
        "def train(scaler: GradScaler | None = None):\n"
        '    with cast("cuda"), open(x) as y:\n'
        "        scaler = GradScaler(\n"
        '            "cuda", enabled=True,\n'
        "        )\n"
    )

    assert rewritten(before) == after


def test_the_module_by_another_name_and_bare_decorators() -> None:
    assert rewritten("from torch.cuda import amp\nx = amp.autocast(a)\n") == (
        'from torch import amp\nx = amp.autocast("cuda", enabled=a)\n'
    )
    assert rewritten("from torch.cuda.amp import custom_fwd\n@custom_fwd\ndef f(c): ...\n") == (
        'from torch.amp import custom_fwd\n@custom_fwd(device_type="cuda")\ndef f(c): ...\n'
    )


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nx = torch.cuda.amp.autocast(*given)\n",
        "import torch\nx = torch.cuda.amp.autocast((a))\n",
        "import torch\nx = torch.cuda.amp.GradScaler()\nassert isinstance(x, torch.cuda.amp.GradScaler)\n",
        "from torch.cuda.amp import autocast\nmake = partial(autocast, enabled=True)\nx = autocast()\n",
        "from torch.cuda.amp import GradScaler\nclass Mine(GradScaler): ...\n",
        "from torch.cuda.amp import autocast\nif cpu:\n    autocast = nullcontext\nx = autocast()\n",
        "from torch.cuda.amp import autocast, common\nx = autocast()\n",
        "import torch.cuda.amp as amp, os\nx = amp.autocast()\n",
    ],
)
def test_nothing_is_rewritten_in_doubt(text: str) -> None:
    assert rewritten(text) is None


def test_a_name_that_others_take_from_here_stays() -> None:
    text = "from torch.cuda.amp import autocast\nx = autocast()\n"

    assert rewritten(text) is not None
    assert rewritten(text, other="from train import autocast\ny = autocast()\n") is None


def test_a_file_that_chooses_by_version_is_left_alone() -> None:
    chosen = (
        "import torch\n"
        "if torch.__version__ >= '2.4':\n"
        "    x = torch.amp.GradScaler('cuda')\n"
        "else:\n"
        "    x = torch.cuda.amp.GradScaler()\n"
        "try:\n"
        "    from torch.cuda.amp import autocast\n"
        "except ImportError:\n"
        "    autocast = None\n"
    )

    assert not list(find_old_amp(load_texts({"train.py": chosen})))

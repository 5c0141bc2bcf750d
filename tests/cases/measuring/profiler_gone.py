"""Code that has MS003, and that must stay quiet."""

from __future__ import annotations

from tests.cases.code import SourceCase

SOURCE_CASES = (
    SourceCase("finds it when it is imported", "import torch.utils.bottleneck  # found\n"),
    SourceCase("finds it when a part is imported", "from torch.utils import bottleneck  # found\n"),
    SourceCase(
        "finds it when a command starts it",
        'import subprocess\nsubprocess.run(["python", "-m", "torch.utils.bottleneck", "train.py"])  # found\n',
    ),
    SourceCase(
        "finds it when the shell does",
        'import os\nos.system("python -m torch.utils.bottleneck train.py")  # found\n',
    ),
    SourceCase(
        "finds it when a keyword has no effect any more",
        "from torch.profiler import profile\nwith profile(use_cuda=True, with_stack=True) as seen:  # found\n    f()\n",
    ),
    SourceCase(
        "finds it in autograd's profiler",
        "import torch\nwith torch.autograd.profiler.profile(use_cuda=True) as seen:  # found\n    f()\n",
    ),
    SourceCase(
        "quiet when activities are given",
        "from torch.profiler import ProfilerActivity, profile\nseen = profile(activities=[ProfilerActivity.CUDA])\n",
    ),
    SourceCase("quiet when it is only spoken of", '"""Once: python -m torch.utils.bottleneck."""\nbottleneck = 3\n'),
    SourceCase("quiet when another profiler has the keyword", "from mine import profile\nprofile(use_cuda=True)\n"),
)

"""Code that has CO511, and that must stay quiet."""

from __future__ import annotations

from tests.cases.code import SourceCase

_IMPORTED = """
from torch.cuda.amp import GradScaler, autocast  # found
scaler = GradScaler(enabled=True)
with autocast(use_amp):
    loss = model(x)
"""
_FULL = """
import torch
scaler = torch.cuda.amp.GradScaler()  # found
with torch.cuda.amp.autocast(enabled=True, dtype=torch.float16):  # found
    loss = model(x)
"""
_TRIED = """
import torch
try:
    from torch.amp import autocast
except ImportError:
    from torch.cuda.amp import autocast
if hasattr(torch.amp, "GradScaler"):
    scaler = torch.amp.GradScaler("cuda")
else:
    scaler = torch.cuda.amp.GradScaler()
"""
_FUNCTION = """
from torch.cuda.amp import custom_bwd, custom_fwd  # found

class Double(torch.autograd.Function):
    @staticmethod
    @custom_fwd
    def forward(context, x):
        return 2 * x

    @staticmethod
    @custom_bwd
    def backward(context, gradient):
        return 2 * gradient
"""
_APEX = """
from apex import amp
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")  # found
with amp.scale_loss(loss, optimizer) as scaled:
    scaled.backward()
"""
SOURCE_CASES = (
    SourceCase("finds it at the import", _IMPORTED),
    SourceCase("finds it at each use by its full name", _FULL),
    SourceCase(
        "finds it when the module is imported", "from torch.cuda import amp  # found\nwith amp.autocast():\n    x\n"
    ),
    SourceCase("finds it in a function with a gradient of its own", _FUNCTION),
    SourceCase("finds it when apex casts", _APEX),
    SourceCase("quiet when the file knows of both", _TRIED),
    SourceCase(
        "quiet when torch.amp is used",
        'from torch.amp import autocast\nscaler = torch.amp.GradScaler("cuda")\nwith autocast("cuda"):\n    f()\n',
    ),
    SourceCase(
        "quiet when it is something else", "from torch.cuda import Stream\namp.autocast()\nsound.amp.GradScaler()\n"
    ),
)

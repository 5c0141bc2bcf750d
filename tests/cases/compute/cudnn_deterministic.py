"""Runs and code that have CO503, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import GpuState
from tests.cases.code import SourceCase
from tests.cases.evidence import Case, live_state, on_gpu, run

CASES = (
    Case(
        "finds it when cudnn is held to it",
        run(gpu=on_gpu(), live=live_state(cudnn_deterministic=True, cudnn_benchmark=False)),
        found=True,
    ),
    Case(
        "finds it when all of torch is",
        run(gpu=on_gpu(), live=live_state(cudnn_deterministic=False, deterministic_algorithms=True)),
        found=True,
    ),
    Case(
        "finds it when the card counts what convolutions lose",
        run(
            gpu=on_gpu(sm_active=0.86, tensor_active=0.14),
            gpus=(GpuState(0, dram_active=0.31),),
            live=live_state(cudnn_deterministic=True, convolution_share=1.0),
        ),
        found=True,
    ),
    Case("quiet when it is off", run(gpu=on_gpu(), live=live_state(cudnn_deterministic=False)), found=False),
    Case("quiet on a CPU", run(live=live_state(cudnn_deterministic=True)), found=False),
)

_LOOP = """
class Net(nn.Module):
    def __init__(self):
        self.layer = nn.Conv2d(3, 9, 3)

def train(loader):
    model = Net().cuda()
    for x, y in loader:
        criterion(model(x.cuda()), y.cuda()).backward()
        optimizer.step()
"""
_SEED = """
import random, torch

def seed_everything(seed, deterministic=True):
    random.seed(seed)
    if deterministic:
        torch.backends.cudnn.deterministic = True%s
        torch.backends.cudnn.benchmark = False

seed_everything(42%s)
train(loader)
"""
_OPTION = """
import argparse
from torch.backends import cudnn
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=None)
parser.add_argument("--deterministic", action="store_true")
parser.add_argument("--strict", default=True)%s
args = parser.parse_args()
%s
train(loader)
"""
SOURCE_CASES = (
    SourceCase("finds it at the start of a script", "torch.backends.cudnn.deterministic = True  # found\n" + _LOOP),
    SourceCase("finds it when a function that seeds does it", _LOOP + _SEED % ("  # found", "")),
    SourceCase(
        "finds it when all of torch is held to it", "torch.use_deterministic_algorithms(True)  # found\n" + _LOOP
    ),
    SourceCase(
        "finds it in a file of the training",
        {
            "train.py": "from seeds import fix\nfix(1)\n" + _LOOP,
            "seeds.py": "def fix(seed):\n    cudnn.deterministic = True  # found\n",
        },
    ),
    SourceCase("finds it at a default", _LOOP + _OPTION % ("  # found", "cudnn.deterministic = args.strict")),
    SourceCase("finds it when the search is off", "torch.backends.cudnn.benchmark = False  # found\n" + _LOOP),
    SourceCase("finds it when cudnn is off", "torch.backends.cudnn.enabled = False  # found\n" + _LOOP),
    SourceCase(
        "quiet when an option is off", _LOOP + _OPTION % ("", "if args.deterministic:\n    cudnn.deterministic = True")
    ),
    SourceCase(
        "quiet when no seed is given",
        _LOOP + _OPTION % ("", "if args.seed is not None:\n    cudnn.deterministic = True"),
    ),
    SourceCase("quiet when the option decides", _LOOP + _OPTION % ("", "cudnn.deterministic = args.deterministic")),
    SourceCase("quiet when callers do without", _LOOP + _SEED % ("", ", deterministic=False")),
    SourceCase("quiet when nobody calls it", _LOOP + (_SEED % ("", "")).replace("seed_everything(42)", "")),
    SourceCase("quiet when the search is on", "torch.backends.cudnn.benchmark = True\n" + _LOOP),
    SourceCase("quiet when nothing trains here", "torch.backends.cudnn.deterministic = True\nmodel(x.cuda())\n"),
)

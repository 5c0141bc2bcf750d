"""Runs and code that have CO502, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import GpuState
from flatout.records.report import GpuUse, RunFacts
from tests.cases.code import SourceCase
from tests.cases.evidence import Case, live_state, on_gpu, run


def _case(
    name: str,
    found: bool,
    gpu: GpuUse | None = None,
    dtypes: dict[str, float] | None = None,
    gpus: tuple[GpuState, ...] = (),
) -> Case:
    live = live_state(matmul_precision="high", grad_dtypes=dtypes or {"float32": 1.0})
    facts = RunFacts("run", ("train.py",), 0, 300, 30.0, 1, "NVIDIA H200", "2.13.0", "3.12")
    return Case(name, run(gpu=gpu or on_gpu(tensor_active=0.35), gpus=gpus, run=facts, live=live), found)


CASES = (
    _case("finds it when the tensor cores work in TF32", found=True),
    _case("finds it when memory is counted too", found=True, gpus=(GpuState(0, dram_active=0.28),)),
    _case("quiet under autocast", found=False, dtypes={"bfloat16": 0.8, "float32": 0.2}),
    _case("quiet when the tensor cores have little to do", found=False, gpu=on_gpu(tensor_active=0.05)),
    _case("quiet when the host binds", found=False, gpu=on_gpu(tensor_active=0.35, drained_share=0.6)),
)

_LOOP = """
def train(model, loader, device=torch.device("cuda")):
    model.to(device)
    for x, y in loader:  # found
        loss = criterion(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
"""
_QUIET = _LOOP.replace("  # found", "")
_LIGHTNING = """
import lightning as L

class Lit(L.LightningModule):
    def training_step(self, batch, index):
        return self.net(batch)

trainer = L.Trainer(accelerator="gpu", max_epochs=10%s)%s
trainer.fit(Lit(), loader)
"""
_ARGUMENTS = """
from transformers import Trainer, TrainingArguments
arguments = TrainingArguments(output_dir="out"%s)%s
Trainer(model, arguments, train_dataset=data).train()
"""
SOURCE_CASES = (
    SourceCase("finds it in a plain loop", _LOOP),
    SourceCase("finds it at Lightning's trainer", _LIGHTNING % ("", "  # found")),
    SourceCase("finds it at the arguments of transformers", _ARGUMENTS % ("", "  # found")),
    SourceCase(
        "quiet when autocast is on",
        _QUIET.replace("        loss = ", "        with torch.autocast('cuda'):\n            loss = "),
    ),
    SourceCase("quiet when an option turns it on", _QUIET + "parser.add_argument('--amp', action='store_true')\n"),
    SourceCase("quiet when a config file says so", {"train.py": _QUIET, "config.yaml": "train:\n  fp16: true\n"}),
    SourceCase("quiet when Lightning is told", _LIGHTNING % (', precision="16-mixed"', "")),
    SourceCase("quiet when settings come from elsewhere", _LIGHTNING % (", **settings", "")),
    SourceCase("quiet when transformers are told", _ARGUMENTS % (", bf16=args.bf16", "")),
    SourceCase("quiet when a launcher has a say", "accelerator = Accelerator()\n" + _QUIET),
    SourceCase("quiet when an agent learns with a small network", _QUIET + "env = gym.make('CartPole-v1')\n"),
    SourceCase("quiet on a CPU", _QUIET.replace("cuda", "cpu")),
    SourceCase(
        "quiet when more than float32 is needed", _QUIET.replace("model.to(device)", "model.double().to(device)")
    ),
)

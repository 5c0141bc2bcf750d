"""Runs that have CO517, and that must stay quiet."""

from __future__ import annotations

from dataclasses import replace

from flatout.records.evidence import PickedTable
from tests.cases.evidence import HERE, Case, on_gpu, run

_MS = {"data": 1.0, "forward": 10.0, "backward": 29.0, "optimizer": 60.0}
_TABLE = PickedTable(
    HERE,
    elements=6.4e6,
    picked=64e3,
    uses=1.0,
    bytes=25.6e6,
    all_bytes=26e6,
    backward_ms=8.0,
    optimizer="torch.optim.adagrad.Adagrad",
)
CASES = (
    Case("finds it when a batch picks a hundredth of the rows", run(ms=_MS, picked_tables=(_TABLE,)), found=True),
    Case(
        "finds it when Adam has the table",
        run(ms=_MS, picked_tables=(replace(_TABLE, optimizer="torch.optim.adam.Adam"),)),
        found=True,
    ),
    Case(
        "finds it when SGD has momentum",
        run(ms=_MS, picked_tables=(replace(_TABLE, optimizer="torch.optim.sgd.SGD", decays=True),)),
        found=True,
    ),
    Case(
        "finds it on a GPU",
        run(
            gpu=on_gpu(device_ms={"forward": 10.0, "backward": 40.0, "optimizer": 50.0, "step": 100.0}),
            picked_tables=(replace(_TABLE, uses=2.0),),
        ),
        found=True,
    ),
    Case(
        "quiet when a batch picks half of the rows",
        run(ms=_MS, picked_tables=(replace(_TABLE, picked=3.2e6),)),
        found=False,
    ),
    Case(
        "quiet when the table is a small part of the weights",
        run(ms=_MS, picked_tables=(replace(_TABLE, all_bytes=1e9, backward_ms=0.5),)),
        found=False,
    ),
    Case(
        "quiet when the optimizer takes little of the step",
        run(picked_tables=(replace(_TABLE, backward_ms=1.0),)),
        found=False,
    ),
    Case(
        "quiet when the GPU waits for the host",
        run(gpu=on_gpu(drained_share=0.8), picked_tables=(_TABLE,)),
        found=False,
    ),
    Case("quiet without such a table", run(ms=_MS), found=False),
)

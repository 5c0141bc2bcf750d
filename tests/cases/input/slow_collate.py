"""Runs and code that have IN107, and that must stay quiet."""

from __future__ import annotations

from flatout.records.report import CopySite, LineCost, Location
from tests.cases.code import SourceCase, cases_in
from tests.cases.evidence import STARVED_MS, Case, loader, on_gpu, run, starved_run, worker_cost

_PADDING = worker_cost(fetch_ms_per_sample=2.0, collate_ms_per_sample=9.0, busy_share=0.95, queue_depth=0.0)
_LINE = LineCost(Location("data.py", 30), "pad", "data", 0.4, 40.0)
CASES = (
    Case(
        "finds it when workers spend their time padding",
        starved_run(loader(cost=_PADDING, collate_fn="pad"), cpus=4.0),
        found=True,
    ),
    Case(
        "finds it in the main process, with its line",
        run(
            loaders=(
                loader(
                    num_workers=0,
                    collate_fn="Batcher.pad",
                    cost=worker_cost(workers=0, fetch_ms_per_sample=0.2, collate_ms_per_sample=1.4),
                ),
            ),
            ms=STARVED_MS,
            all_lines=(_LINE,),
            cpus=2.0,
            main_cpu_share=1.0,
        ),
        found=True,
    ),
    Case(
        "quiet when torch stacks large tensors",
        starved_run(
            loader(cost=_PADDING),
            cpus=4.0,
            copies=(CopySite(Location("train.py", 12), "train", 1.0, 2.0, 1e9, 1.0, 1.0),),
        ),
        found=False,
    ),
    Case(
        "quiet when decoding takes the time",
        starved_run(loader(cost=worker_cost(fetch_ms_per_sample=11.0, busy_share=0.95), collate_fn="pad")),
        found=False,
    ),
    Case(
        "quiet when nobody waits for it",
        run(gpu=on_gpu(), loaders=(loader(cost=_PADDING, collate_fn="pad"),)),
        found=False,
    ),
)

_COLLATE = """
def pad(rows):
    out = torch.zeros(len(rows), max(map(len, rows)))
    %s
    return out

loader = DataLoader(Rows(), batch_size=32, num_workers=4, collate_fn=pad)
for batch in loader:
    model(batch).backward()
    optimizer.step()
"""

_case = cases_in(_COLLATE)
SOURCE_CASES = (
    _case(
        "finds it when numbers are written one by one",
        "for i, row in enumerate(rows):",
        "    for j, token in enumerate(row):",
        "        out[i, j] = token  # found",
    ),
    _case(
        "finds it when the batch grows sample by sample",
        "for row in rows:",
        "    out = torch.cat([out, row[None]])  # found",
    ),
    _case("quiet when rows are written", "for i, row in enumerate(rows):", "    out[i, : len(row)] = row"),
    _case("quiet when it is put together once", "out = torch.cat([row[None] for row in rows])"),
    _case(
        "quiet when rows of several parts are written",
        "for i, parts in enumerate(rows):",
        "    for j, part in enumerate(parts):",
        "        out[i, j, : len(part)] = part",
    ),
    SourceCase("quiet when torch collates", _COLLATE.replace(", collate_fn=pad", "") % "pass"),
)

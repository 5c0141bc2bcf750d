"""What is gained by findings of the input, as the model of the step gives it."""

from __future__ import annotations

from flatout.problems.catalogue import find_problem
from flatout.records.evidence import Evidence
from flatout.records.report import Finding, LineCost, Location
from tests.cases.evidence import loader, run, worker_cost

_MS = {"data": 63.0, "forward": 9.0, "backward": 12.0, "optimizer": 2.5, "gc": 2.5}
_JOINING = """def join(molecules):
    lengths = []
    for molecule in molecules:
        places = molecule["places"]
        for sender, receiver in molecule["edges"].tolist():
            lengths.append((places[sender] - places[receiver]).norm())
    return torch.stack(lengths)
"""


def _collated(*lines: LineCost) -> Evidence:
    cost = worker_cost(workers=0, fetch_ms_per_sample=0.0, collate_ms_per_sample=1.97, busy_share=None)
    return run(
        ms=_MS,
        loaders=(loader(num_workers=0, collate_fn="data.join", cost=cost),),
        cpus=2.0,
        main_cpu_share=1.0,
        all_lines=lines,
        files={"data.py": _JOINING},
    )


def _line(number: int, phase: str, ms: float) -> LineCost:
    return LineCost(Location("data.py", number), "join", phase, ms / 89.0, ms)


def _only(code: str, evidence: Evidence) -> Finding:
    (found,) = find_problem(code).found_in_run(evidence)
    return found


def test_a_loop_that_collates_is_done_at_once_and_its_garbage_goes_with_it() -> None:
    copying = _only("IN107", _collated(_line(7, "data", 63.0))).predicted_gain
    looping = _only("IN107", _collated(_line(6, "data", 63.0))).predicted_gain
    with_garbage = _only("IN107", _collated(_line(6, "data", 63.0), _line(6, "gc", 2.5))).predicted_gain

    assert copying is not None and looping is not None and with_garbage is not None
    assert copying.mid < looping.mid < with_garbage.mid
    # 89 ms without the 63 and the 2.5, but for a few calls.
    assert 3.0 < with_garbage.mid < 89.0 / (89.0 - 65.5)

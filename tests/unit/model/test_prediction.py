"""Whether a model reproduces its run, and what it then says of a change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.diagnose.findings import find_problems
from flatout.model.edits import BatchCosts, Edits, LessHost, NoStarts, Prefetch, Workers
from flatout.model.prediction import can_promise, model_of, predict
from flatout.records.evidence import Evidence, Waiting
from flatout.records.machine import MachineUse
from flatout.records.report import Warmup
from tests.cases.evidence import STARVED_MS, live_state, loader, on_gpu, run, starved_run, worker_cost

BUSY = loader(num_workers=2, cost=worker_cost(workers=2, fetch_ms_per_sample=6.0, busy_share=0.98, queue_depth=0.1))
# Workers that would need four times the measured step: something in this run is not what it seems.
IMPOSSIBLE = loader(num_workers=2, cost=worker_cost(workers=2, fetch_ms_per_sample=25.0, busy_share=0.98))
WITHOUT = {"data": 0.0, "forward": 40.0, "backward": 50.0, "optimizer": 10.0}


def gain_of(evidence: Evidence, *edits: LessHost | Workers | BatchCosts | Prefetch) -> float | None:
    gain = predict(evidence, Edits(edits))
    return None if gain is None else gain.mid


def test_a_run_that_waits_for_its_workers_is_reproduced() -> None:
    calibrated = model_of(starved_run(BUSY))

    assert calibrated is not None and calibrated.is_reproduced
    assert calibrated.played_ms == pytest.approx(100.0, rel=0.05)


def test_waits_that_no_mean_batch_explains_are_for_slow_ones() -> None:
    cost = worker_cost(workers=2, fetch_ms_per_sample=2.0, slowest_batch_ms=600.0, busy_share=0.4)
    waiting = Waiting(0.0, None, rest_ms=50.0, median_ms=5.0, empty_share=0.3)
    evidence = run(loaders=(loader(num_workers=2, prefetch_factor=1, cost=cost),), ms=STARVED_MS, waiting=waiting)
    calibrated = model_of(evidence)

    assert calibrated is not None and calibrated.is_reproduced
    assert calibrated.model.loader is not None and calibrated.model.loader.slow_share > 0.05
    assert (gain_of(evidence, Prefetch(16)) or 1.0) > 1.2


def test_what_is_not_reproduced_is_found_but_promises_nothing() -> None:
    evidence = starved_run(IMPOSSIBLE)
    found = {finding.code: finding for finding in find_problems(evidence)}

    assert not can_promise(evidence)
    assert found["IN102"].predicted_gain is None and found["IN102"].severity in ("high", "medium", "low")


def test_a_gain_is_the_ratio_of_the_steps() -> None:
    evidence = run(ms=WITHOUT, loaders=())

    assert gain_of(evidence, LessHost(20.0)) == pytest.approx(1.25)
    assert gain_of(evidence, LessHost(0.1)) is None


def test_looks_at_lines_make_an_interval() -> None:
    few = replace(run(ms=WITHOUT, loaders=()), line_looks=50.0)
    many = replace(few, line_looks=50_000.0)
    change = Edits((LessHost(20.0),))
    narrow, wide = predict(many, change), predict(few, change)

    assert narrow is not None and wide is not None
    assert narrow.low <= 1.25 <= narrow.high
    assert wide.high - wide.low > narrow.high - narrow.low
    assert predict(few, change) == wide


def test_what_is_not_sure_of_the_change_is_in_the_interval() -> None:
    change = Edits((LessHost(20.0),), worst=(LessHost(5.0),), best=(LessHost(50.0),))
    gain = predict(run(ms=WITHOUT, loaders=()), change)

    assert gain is not None
    assert gain.low < 1.1 and gain.mid == pytest.approx(1.25) and gain.high > 1.9


def test_sparing_the_host_promises_nothing_where_the_device_was_not_measured() -> None:
    unknown = on_gpu(starved_share=None, drained_share=None, util_mean=None, device_ms={})

    assert gain_of(run(gpu=unknown, ms=WITHOUT, loaders=()), LessHost(20.0)) is None


def test_a_thread_that_slept_before_it_computed_gains_more_than_the_sleep() -> None:
    slept = replace(
        run(ms={"forward": 25.0, "backward": 5.0}, loaders=(), live=live_state(num_threads=1)), main_cpu_share=1 / 3
    )
    awake = replace(slept, main_cpu_share=1.0)
    calibrated = model_of(slept)

    assert calibrated is not None and calibrated.is_reproduced
    asleep, computing = (gain_of(each, LessHost(20.0, "forward", is_idle=True)) for each in (slept, awake))
    assert asleep is not None and computing == pytest.approx(3.0) and asleep > 3.3


def test_what_is_at_most_gained_may_be_nothing() -> None:
    gain = predict(run(ms=WITHOUT, loaders=()), Edits((LessHost(20.0),), is_most=True))

    assert gain is not None and gain.low == 1.0 and gain.mid == pytest.approx(1.25)


def test_other_work_before_computing_makes_the_interval_wider() -> None:
    evidence = run(ms={**WITHOUT, "gc": 100.0}, loaders=())
    gain = predict(evidence, Edits((LessHost(100.0, "gc", is_sampled=False),)))
    calibrated = model_of(evidence)

    assert calibrated is not None and len(calibrated.others) == 2
    assert all(other.own_ms < 200.0 and other.warm[0] < 1.0 == other.warm[1] for other in calibrated.others)
    # Without it a hundred milliseconds are left, and maybe three fewer.
    assert gain is not None and gain.mid == pytest.approx(2.0) and gain.high > 2.03


def test_workers_beside_others_gain_something_between_none_and_what_a_quiet_machine_gives() -> None:
    def starved(**machine: Any) -> Evidence:
        alone = loader(num_workers=0, cost=worker_cost(workers=0, fetch_ms_per_sample=2.0))
        return run(cpus=2.0, ms={"data": 64.0, "forward": 30.0}, loaders=(alone,), machine=MachineUse(2.0, **machine))

    quiet = predict(starved(), Edits((Workers(2),)))
    # Beside five that always compute, two more processes get little more than one did.
    beside = predict(starved(other_cores=5.0), Edits((Workers(2),)))
    crowded = predict(starved(other_cores=5.0, disturbed=True), Edits((Workers(2),)))

    assert quiet is not None and crowded is not None
    assert 1.0 < crowded.mid < quiet.mid and crowded.low == 1.0 and crowded.high > crowded.mid
    assert beside is None or beside.mid < crowded.mid


def test_whether_samples_compute_or_wait_is_played_both_ways_where_it_was_not_measured() -> None:
    def starved(**told: Any) -> Evidence:
        alone = loader(num_workers=0, cost=worker_cost(workers=0, fetch_ms_per_sample=2.0))
        return run(cpus=2.0, ms={"data": 64.0, "forward": 12.0}, loaders=(alone,), **told)

    waits, unknown, computes = (
        predict(starved(**told), Edits((Workers(4),)))
        for told in ({"main_cpu_share": 0.16}, {}, {"main_cpu_share": 1.0})
    )

    assert waits is not None and unknown is not None and computes is not None
    assert computes.mid < unknown.mid < waits.mid
    assert unknown.low < 1.1 * computes.mid and unknown.high > 0.9 * waits.mid


def test_a_run_whose_speed_varied_promises_less_surely() -> None:
    calm = run(ms=WITHOUT, loaders=())
    warmup = Warmup(0, 0.0, (), 100, step_error=0.02, varied_ms=(80.0, 120.0))
    uneven = replace(calm, report=replace(calm.report, warmup=warmup))
    change = Edits((LessHost(50.0, is_sampled=False),))
    narrow, wide = predict(calm, change), predict(uneven, change)

    assert narrow is not None and wide is not None and narrow.mid == wide.mid
    assert wide.high - wide.low > narrow.high - narrow.low


_FIGURES = st.floats(0.0, 1e5)
_PHASES = ("data", "forward", "backward", "sync", "eval", "logging")
_SHARES = st.floats(0.0, 1.0)


@given(
    ms=st.fixed_dictionaries(dict.fromkeys(_PHASES, _FIGURES)).filter(lambda ms: sum(ms.values()) > 0.01),
    workers=st.integers(0, 20),
    fetch_ms=_FIGURES,
    slowest_ms=_FIGURES,
    shares=st.tuples(_SHARES, _SHARES, _SHARES),
    cpus=st.floats(0.1, 64.0),
)
@settings(max_examples=60, deadline=None)
def test_whatever_was_measured_is_played(
    ms: dict[str, float],
    workers: int,
    fetch_ms: float,
    slowest_ms: float,
    shares: tuple[float, float, float],
    cpus: float,
) -> None:
    cost = worker_cost(workers=workers, fetch_ms_per_sample=fetch_ms, slowest_batch_ms=slowest_ms)
    waiting = Waiting(shares[0], fetch_ms, 1.0, 1.0, late_share=shares[1], empty_share=shares[2], ready_ms=slowest_ms)
    use = loader(num_workers=workers, cost=cost)
    evidence = replace(run(ms=ms, loaders=(use,), cpus=cpus, waiting=waiting), main_cpu_share=shares[2])
    calibrated = model_of(evidence)

    assert calibrated is not None and calibrated.played_ms > 0
    for edit in (LessHost(5.0), Workers(workers + 1), BatchCosts(1.0, 2.0), Prefetch(8)):
        gain = predict(evidence, Edits((edit,)))
        assert gain is None or 1.0 <= gain.low <= gain.mid <= gain.high < 1e9


def test_passes_after_a_start_are_slower_once() -> None:
    """Every fourth step begins an epoch, and its passes take 20 ms longer: 5 ms of the mean step."""
    ms = {"data": 12.0, "forward": 10.0, "backward": 10.0}
    waiting = Waiting(first_share=0.25, first_ms=45.0, rest_ms=1.0, median_ms=1.0, first_slower_ms=20.0)
    use = loader(num_workers=2, cost=worker_cost(fetch_ms_per_sample=0.1), persistent_workers=False)
    evidence = run(ms=ms, loaders=(use,), waiting=waiting)

    calibrated = model_of(evidence)

    assert calibrated is not None and calibrated.is_reproduced
    gain = predict(evidence, Edits((NoStarts(0.0),)))
    assert gain is not None and gain.mid == pytest.approx(32.0 / (15.0 + 1.0), rel=0.25)

from __future__ import annotations

import numpy as np
import pytest

from flatout.experiment.statistics.ceiling import measure_ceiling, training_hours
from flatout.records.trial import Trial
from flatout.words import english
from tests.unit.experiment.statistics.simulated import failed, made, trials


def test_the_slower_of_device_and_loader_binds() -> None:
    rng = np.random.default_rng(1)

    found = measure_ceiling(trials(rng, 2), trials(rng, 2, gain=1.5), trials(rng, 2, gain=1.2))

    assert found is not None and found.reached is not None and found.left is not None
    assert found.binds == "feed"
    assert found.left == pytest.approx(1 - 1 / 1.2, abs=0.05)
    assert found.reached.low < 1 / 1.2 < found.reached.high
    assert not found.enough
    assert english(found.sentence).endswith("samples/s that the loader alone can do")


def test_close_to_the_ceiling_is_enough() -> None:
    rng = np.random.default_rng(2)

    found = measure_ceiling(trials(rng, 3), trials(rng, 3, gain=1.01), trials(rng, 3, gain=3.0))

    assert found is not None
    assert (found.binds, found.enough) == ("compute", True)
    assert english(found.sentence).endswith("samples/s that the device alone can do with the kernels as they are")


def test_a_ceiling_that_was_not_measured_is_said_to_be() -> None:
    now = [made([0.1] * 50)]

    half = measure_ceiling(now, [failed("crashed")], [made([0.05] * 50)])
    none = measure_ceiling(now, [], [])

    assert half is not None and none is not None
    assert (half.binds, half.compute_per_s) == ("feed", None)
    assert (
        english(half.sentence)
        == "50% of the 640 samples/s that the loader alone can do; the device alone was not measured"
    )
    assert (none.reached, none.left, none.enough) == (None, None, False)
    assert measure_ceiling([failed("crashed")], now, now) is None


def test_pauses_count_beside_the_device_alone_and_not_beside_the_loader() -> None:
    def with_pauses(step_s: float, pause_s: float) -> list[Trial]:
        return [made([step_s + pause_s * (n % 20 == 19) for n in range(100)], pause_s=(*[0.0] * 19, pause_s) * 5)]

    now, device = with_pauses(0.05, 1.0), with_pauses(0.05, 0.5)

    by_steps, by_total = (measure_ceiling(now, device, [], by=by) for by in ("blocks", "total"))
    beside_loader = measure_ceiling(now, with_pauses(0.03, 0.5), [made([0.04] * 100)], by="total")

    assert by_steps is not None and by_steps.reached is not None and by_steps.reached.mid == pytest.approx(1.0)
    assert by_total is not None and by_total.reached is not None and by_total.reached.mid == pytest.approx(0.75)
    assert (by_total.achieved_per_s, by_total.compute_per_s) == pytest.approx((320, 320 / 0.75))
    assert beside_loader is not None and beside_loader.binds == "feed"
    assert beside_loader.achieved_per_s == pytest.approx(640)


def test_what_is_slower_than_the_training_was_no_ceiling() -> None:
    found = measure_ceiling([made([0.05] * 50)], [made([0.1] * 50)], [])

    assert found is not None and (found.reached, found.binds, found.enough) == (None, None, False)
    assert english(found.sentence) == "not found: the device alone did 320 samples/s in its trial, the training more"


def test_a_hundred_thousand_steps_take_so_many_hours() -> None:
    before = [made([0.36] * 99 + [3.96]) for _ in range(2)]

    found = training_hours(before, before)

    assert found is not None
    assert found.mid == pytest.approx(100_000 * 0.396 / 3600)
    assert found.low < found.mid < found.high


def test_after_a_larger_batch_the_same_samples_count() -> None:
    before, after = [made([0.1] * 50, batch=16)], [made([0.15] * 50, batch=32)]

    then, now = training_hours(before, before), training_hours(before, after)

    assert then is not None and now is not None
    assert now.mid / then.mid == pytest.approx(0.75)
    assert training_hours(before, [failed("hung")]) is None

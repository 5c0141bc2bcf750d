from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from flatout.attach import wire
from flatout.diagnose.steady import (
    Known,
    SteadyPart,
    StepTimes,
    change_points,
    find_steady,
    is_told,
    step_error,
    steps_needed,
    warmup_causes,
)
from flatout.diagnose.summary import _few_steps, examine_run, summarise_run
from flatout.records.message import verbatim
from flatout.records.report import Finding, Gain, RunReport
from flatout.report.overview import describe_warmup
from flatout.report.terminal import render
from flatout.words import chinese, english
from tests.unit.making import MS, Making, Process, body

Array = NDArray[Any]
NOISE = 0.05


def steps(*parts: tuple[int, float]) -> Array:
    return np.concatenate([np.full(count, seconds) for count, seconds in parts])


def noisy(*parts: tuple[int, float], seed: int = 0) -> Array:
    exact = steps(*parts)
    return np.asarray(exact * np.exp(np.random.default_rng(seed).normal(0.0, NOISE, len(exact))))


def times(step_s: Array, **more: Any) -> StepTimes:
    given = {"count": np.ones(len(step_s)), "data_s": np.zeros(len(step_s)), "compile_s": np.zeros(len(step_s))}
    return StepTimes(step_s, **{**given, "epochs": np.zeros(0, np.int64), **more})


def found(step_s: Array, known: Known | None = None, **more: Any) -> tuple[int, SteadyPart]:
    """How many records are warm-up, and the whole of it."""
    part = find_steady(times(step_s, **more), known or Known())
    return int((~part.is_steady).sum()), part


@pytest.mark.parametrize(
    ("walls", "expected"),
    [
        pytest.param(steps((3, 9.0)), 0, id="too few to compare"),
        pytest.param(steps((100, 1.0)), 0, id="settled from the start"),
        pytest.param(steps((1, 9.0), (9, 1.0)), 1, id="first step"),
        pytest.param(noisy((3, 30.0), (97, 1.0)), 3, id="compiling"),
        pytest.param(noisy((1, 30.0), (2, 1.0), (1, 20.0), (196, 1.0)), 4, id="compiling, once more soon after"),
        pytest.param(noisy((20, 10.0), (180, 1.0)), 20, id="a tenth compiles"),
        pytest.param(noisy((60, 1.6), (140, 1.0)), 60, id="slower at first"),
        pytest.param(noisy((120, 1.6), (80, 1.0)), 0, id="slower for longer than the rest, and nobody knows why"),
        pytest.param(noisy((60, 1.1), (140, 1.0)), 0, id="a little slower at first"),
        pytest.param(np.tile(steps((9, 1.0), (1, 20.0)), 10), 0, id="every tenth step is long"),
        pytest.param(np.tile(steps((1, 1.0), (1, 14.0)), 40), 0, id="two workers, a burst every other step"),
        pytest.param(noisy((90, 1.0), (1, 60.0), (109, 1.0)), 0, id="one long step in the middle"),
        pytest.param(noisy((1, 60.0), (60, 1.0), (60, 1.6), (60, 1.0)), 1, id="slow for a while, then as before"),
        pytest.param(noisy((60, 1.6), (60, 1.0), (60, 1.6)), 0, id="a speed that comes back is its own"),
        pytest.param(noisy((100, 1.0), (100, 1.6)), 0, id="slower from the middle on"),
        pytest.param(np.linspace(2.0, 1.0, 200), 0, id="faster and faster"),
        pytest.param(noisy((16, 1.0)), 0, id="sixteen steps"),
    ],
)
def test_warm_up_is_the_unsettled_beginning(walls: Array, expected: int) -> None:
    count, part = found(walls)

    # A change point may lie a step or two beside, in noise; and the first step may stand out by chance.
    assert abs(count - expected) <= (2 if expected > 4 else 1 if expected == 0 else 0)
    assert part.is_steady[-1]


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_no_warm_up(seed: int) -> None:
    random = np.random.default_rng(seed)
    # Bursts, as a loader's: heavy to one side, and each like its neighbours.
    drift = np.cumsum(random.normal(0.0, 0.003, 400))
    walls = np.exp(drift - drift.mean() + random.normal(0.0, 0.1, 400)) + random.pareto(3.0, 400)

    # A long step among the very first is taken for warm-up.
    assert found(walls)[0] <= 3


def test_the_first_epoch_of_a_cache_is_warm_up_however_long_it_is() -> None:
    walls = noisy((150, 3.0), (50, 1.0))
    epochs = np.array([0, 150])

    assert found(walls)[0] == 0
    count, part = found(walls, data_s=walls - 0.9, epochs=epochs)
    assert (count, part.level_cause) == (150, "first epoch")
    # The same times, but it is the model that was slower.
    assert found(walls, epochs=epochs)[0] == 0


def test_batches_made_ahead_last_as_long_as_they_can() -> None:
    # Eight batches are ready; workers make one in 1.5 s, a step takes 1 s.
    walls = noisy((24, 1.0), (300, 1.5))
    known = Known(has_workers=True, prefetched=8)

    count, part = found(walls, known, data_s=walls - 0.9)
    assert abs(count - 24) <= 1
    assert part.level_cause == "prefetched"
    assert found(walls, known)[0] == 0
    assert found(noisy((120, 1.0), (300, 1.5)), known, data_s=noisy((120, 0.1), (300, 0.6)))[0] == 0


def test_a_host_that_runs_ahead_of_the_device_is_warm_up() -> None:
    walls = noisy((20, 1.0), (200, 3.0))

    count, part = found(walls, Known(queued=32))
    assert abs(count - 20) <= 1
    assert part.level_cause == "device queue"
    assert found(walls)[0] == 0
    assert found(noisy((100, 1.0), (200, 3.0)), Known(queued=32))[0] == 0


def test_steps_that_compile_again_do_not_count() -> None:
    walls = noisy((1, 30.0), (90, 1.0), (1, 20.0), (108, 1.0))
    compiled = np.where(walls > 10, walls - 1, 0.0)

    count, part = found(walls, compile_s=compiled)

    assert count == 2
    assert not part.is_steady[[0, 91]].any()
    assert found(walls)[0] == 1


def test_a_long_step_in_which_the_compiler_was_at_work_does_not_count_whatever_the_compiler_says() -> None:
    """Its own count leaves out its imports, its workers, and what is loaded afterwards."""
    walls = noisy((30, 0.035), (1, 40.0), (169, 0.026))
    compiled = np.where(walls > 10, 9.0, 0.0)

    assert found(walls, compile_s=compiled)[0] in (1, 31)


def test_what_came_before_the_remedies_had_settled_does_not_count() -> None:
    walls = noisy((57, 1.0), (143, 0.7))

    assert found(walls, settled=57)[0] == 57
    # Too few would be left.
    assert found(noisy((57, 1.0), (2, 1.0)), settled=57)[0] == 0


def test_steps_of_a_window_do_not_count_unless_they_are_most_of_the_run() -> None:
    walls = noisy((100, 0.035))
    own = np.where(np.arange(100) == 40, 0.138, 1e-5)

    assert found(walls + own, own_s=own)[0] == 1
    assert found(walls + 0.138, own_s=np.full(100, 0.138))[0] == 0


def test_a_run_that_always_compiles_does_so_by_nature() -> None:
    walls = np.tile(steps((4, 1.0), (1, 20.0)), 40)

    assert found(walls, compile_s=np.where(walls > 10, walls - 1, 0.0))[0] == 0


def test_merged_records_count_as_many_steps() -> None:
    walls, count = noisy((3, 30.0), (200, 1.0)), np.r_[np.ones(100), np.full(103, 16.0)]

    assert found(walls, count=count)[0] == 3


def test_the_speed_of_a_run_that_changes_is_told() -> None:
    slowest = found(noisy((100, 1.0), (100, 1.6)))[1].varied_ms
    assert slowest == pytest.approx((1000, 1600), rel=0.03)
    assert found(noisy((60, 1.6), (140, 1.0)))[1].varied_ms is None
    assert found(noisy((200, 1.0)))[1].varied_ms is None


def test_the_causes_are_what_the_time_went_to() -> None:
    walls = noisy((3, 30.0), (97, 1.0))

    def causes(known: Known, **more: Any) -> tuple[str, ...]:
        given = times(walls, **more)
        return warmup_causes(given, find_steady(given, known), known)

    compiled = np.where(walls > 10, walls - 1.5, 0.0)
    waited = np.where(walls > 10, walls - 2.0, 0.0)
    assert causes(Known()) == ("first step",)
    assert causes(Known(searches_cudnn=True)) == ("cudnn search",)
    assert causes(Known(), compile_s=compiled) == ("compile",)
    assert causes(Known(compile_s=86.0)) == ("compile",)
    assert causes(Known(has_workers=True), data_s=waited) == ("workers",)
    assert causes(Known(), data_s=waited) == ("first batch",)
    assert causes(Known(), data_s=0.4 * waited) == ("first step", "first batch")


@given(st.lists(st.floats(0.0, 1e3), max_size=60))
def test_any_series_has_a_steady_part(walls: list[float]) -> None:
    part = find_steady(times(np.array(walls)), Known(prefetched=4))

    assert part.is_steady.any() == bool(walls)
    assert part.head <= part.first or not walls


def test_a_change_in_the_middle_is_found_where_it_is() -> None:
    values = np.random.default_rng(3).normal(0.0, 1.0, 300)
    values[120:] += 3.0

    assert change_points(values, 4) == pytest.approx([120], abs=1)
    assert change_points(values[:120], 4) == []


# How well the step time is known.


def series(spread: float, count: int, seed: int) -> Array:
    return np.asarray(1.0 + spread * np.random.default_rng(seed).normal(size=count))


def coverage(make: Callable[[int], Array], mean: float) -> float:
    held = [abs(values.mean() / mean - 1) <= (step_error(values) or 0.0) for values in map(make, range(300))]
    return float(np.mean(held))


@pytest.mark.parametrize("count", [8, 16, 50, 400])
def test_the_interval_of_the_step_time_holds_the_mean(count: int) -> None:
    assert coverage(lambda seed: series(0.1, count, seed), 1.0) >= 0.88


def test_more_steps_make_it_narrower_and_few_have_none() -> None:
    few, many = step_error(series(0.1, 16, 0)), step_error(series(0.1, 1600, 0))
    assert few is not None
    assert many is not None
    assert many < few / 4
    assert step_error(series(0.1, 7, 0)) is None


def test_a_drift_is_no_lack_of_steps() -> None:
    error = step_error(np.linspace(1.0, 2.0, 400))
    assert error is not None
    assert error < 0.03


def test_a_gain_must_be_larger_than_the_interval() -> None:
    error = step_error(series(0.01, 16, 1))
    assert is_told(1.5, error)
    assert is_told(1.05, error)
    assert not is_told(1.05, step_error(series(0.3, 16, 1)))
    assert not is_told(1.5, None)


def test_the_steps_needed_would_tell() -> None:
    error = step_error(series(0.3, 16, 1))
    needed = steps_needed(16, error, 1.05)

    assert 32 < needed < 2000
    assert is_told(1.05, step_error(series(0.3, 2 * needed, 2)))
    assert steps_needed(3, None, 1.05) == 16


def test_a_million_steps_are_divided_quickly() -> None:
    walls = noisy((5, 9.0), (999_995, 0.002))

    count, part = found(walls)

    assert count == 5
    assert part.varied_ms is None


WAITS = {"data": 0.6, "forward": 0.1, "backward": 0.2, "optimizer": 0.05}


def told(report: RunReport) -> list[str]:
    return [notice.id for notice in report.notices]


def compiled(process: Process, seconds: float) -> None:
    process.text("compile", {"after": process.index - 1, "index": process.index, "seconds": seconds})


def test_a_compiled_run_is_as_fast_as_its_steady_part(making: Making) -> None:
    process = making.process()
    process.step(30_000.0)
    compiled(process, 29.9)
    process.step(8_000.0)
    compiled(process, 7.9)
    process.steps(98, 10.0)
    process.step(5_000.0)
    compiled(process, 4.9)
    process.steps(99, 10.0)
    process.end()

    report = summarise_run(making.stored())

    assert report.throughput.steps_per_s == pytest.approx(100.0)
    warmup = report.warmup
    assert warmup is not None
    assert (warmup.steps, warmup.causes, warmup.steady_steps) == (3, ("compile",), 197)
    assert warmup.seconds == pytest.approx(43.0)
    assert report.warmup_steps == 3
    assert english(describe_warmup(warmup)) == "3 steps, 43.0 s (compile)"
    assert chinese(describe_warmup(warmup)) == "3 步，43.0 s（编译）"
    assert "3 steps, 43.0 s (compile)" in render(report)


def test_an_older_recording_that_only_knows_the_whole_says_why_too(making: Making) -> None:
    process = making.process()
    process.text("torch", {"version": "2.13.0", "compile_s": 19.0})
    process.step(20_000.0)
    process.steps(99, 10.0)
    process.end()

    warmup = summarise_run(making.stored()).warmup

    assert warmup is not None
    assert warmup.causes == ("compile",)


def starving(tmp_path: Path, walls: np.ndarray) -> Making:  # type: ignore[type-arg]
    making = Making(tmp_path)
    process = making.process()
    settings = {"id": 1, "num_workers": 0, "batch_size": 32, "prefetch_factor": None, "pin_memory": False}
    process.text("loader", {**settings, "persistent_workers": False, "file": "train.py", "line": 3})
    process.text("torch", {"version": "2.13.0", "training_loaders": [1]})
    for wall in walls:
        process.step(float(wall), WAITS)
    process.end()
    return making


@pytest.mark.parametrize("count", [5, 16])
def test_few_steps_withhold_what_they_cannot_tell(tmp_path: Path, count: int) -> None:
    walls = np.random.default_rng(0).exponential(100.0, count)
    run = starving(tmp_path, walls).stored()

    evidence = examine_run(run)

    gains = [finding.predicted_gain.mid for finding in evidence.report.findings if finding.predicted_gain is not None]
    # That most of each step is a wait is certain after 16 steps; a wait of their length would not be after 5.
    assert all(gain > 2.0 for gain in gains) and len(gains) <= (count == 16)
    assert ("run.hardly_any_steps" in told(evidence.report)) == (count == 5)
    if evidence.withheld:
        notice = evidence.report.notices[-1]
        assert notice.args["needed"] > count


def test_more_steps_are_needed_than_there_are(tmp_path: Path) -> None:
    walls = np.random.default_rng(1).normal(100.0, 30.0, 200)
    evidence = examine_run(starving(tmp_path, walls).stored())
    gain = Gain(1.0, 1.01, 1.02, verbatim("a small one"))
    small = Finding("IN101", "input", "t", "low", None, {}, verbatim("c"), None, None, gain)

    assert evidence.report.warmup is not None
    (notice,) = _few_steps(evidence.report.warmup, [small])

    assert notice.id == "run.too_few_steps" and notice.args["needed"] > notice.args["steps"]


def test_even_steps_need_not_be_many(tmp_path: Path) -> None:
    report = summarise_run(starving(tmp_path, np.full(16, 100.0)).stored())

    assert report.warmup is not None
    assert report.warmup.step_error == pytest.approx(0.0, abs=1e-6)
    assert not {"run.hardly_any_steps", "run.too_few_steps"} & set(told(report))


@pytest.mark.parametrize("count", [5, 50])
def test_few_steps_do_not_show_that_a_run_is_healthy(making: Making, count: int) -> None:
    process = making.process()
    process.steps(count, 10.0, {"forward": 0.4, "backward": 0.5, "optimizer": 0.1})
    process.end()

    assert summarise_run(making.stored()).verdict.healthy == (count == 50)


def test_a_change_of_speed_in_the_middle_is_told_and_counted(making: Making) -> None:
    process = making.process()
    process.steps(60, 10.0)
    process.steps(60, 15.0)
    process.end()

    report = summarise_run(making.stored())

    assert report.throughput.steps_per_s == pytest.approx(80.0)
    notice = next(notice for notice in report.notices if notice.id == "run.speed_varied")
    assert notice.args == {"fast_ms": pytest.approx(10.0), "slow_ms": pytest.approx(15.0)}


def test_sites_are_those_of_the_steady_part(making: Making) -> None:
    """Compiling waits for the device too, and often; none of that is seen again."""
    process = making.process()
    for number, op in enumerate(("item", "synchronize", "hidden", "checkpoint")):
        process.text("site", {"id": number, "op": op, "file": "train.py", "line": 10 + number, "function": "main"})
    process.step(20_000.0)
    process.step(10_000.0)
    process.append(body("site", 0, 500, 9_000 * MS, 900 * MS, 0, 0, 0, 0, 0))
    process.append(body("site", 1, 80, 2_000 * MS, 900 * MS, 0, 0, 0, 0, 0))
    process.append(body("site", 2, 60, 0, 0, 0, 0, 0, 2, 0))
    process.append(body("site", 3, 1, 700 * MS, 700 * MS, 0, 0, 0, 0, 0))
    process.steps(100, 10.0)
    # Two slices of the steady part; the first of them begins with it.
    process.append(body("site", 0, 550, 9_050 * MS, 900 * MS, 0, 0, 0, 0, 2))
    process.append(body("site", 0, 600, 9_100 * MS, 900 * MS, 0, 0, 0, 0, 52))
    process.append(body("site", 2, 60, 0, 0, 0, 0, 0, 6, 52))
    process.append(body("site", 3, 2, 1_300 * MS, 700 * MS, 0, 0, 0, 0, 52))
    # Compiled again, in a slice of its own, and waited for again.
    process.step(5_000.0)
    compiled(process, 4.9)
    process.append(body("site", 0, 900, 12_000 * MS, 900 * MS, 0, 0, 0, 0, 102))
    process.append(body("site", 1, 160, 4_000 * MS, 900 * MS, 0, 0, 0, 0, 102))
    process.end()

    report = summarise_run(making.stored())

    (item,) = report.syncs
    assert (item.op, item.per_step, item.ms) == ("item", 1.0, pytest.approx(1.0))
    # How often something is written is a matter of the whole run.
    (pause,) = report.pauses
    assert (pause.count, pause.total_s) == (2, pytest.approx(1.3))


def test_lines_are_those_of_steps_that_count(making: Making) -> None:
    """The slice of time in which something was compiled again tells of the compiler, not of the step."""
    process, lines = making.process(), making.lines()
    forward = wire.PHASES.index("forward")
    for number, name in enumerate(("forward", "compile")):
        lines.text("line", {"id": number, "file": "train.py", "line": 10 + number, "function": name})
    begins = []
    for part in range(4):
        begins.append(process.now_ns)
        process.steps(60, 10.0, {"forward": 1.0})
        if part == 2:
            process.step(5_000.0, {"forward": 1.0})
            compiled(process, 4.9)
    for part, since_ns in enumerate(begins):
        lines.append(body("line", 0, forward, 10, 0.6, 0, 1, since_ns))
        if part == 2:
            lines.append(body("line", 1, forward, 60, 5.0, 0, 0, since_ns))
    process.end()
    lines.end()

    report = summarise_run(making.stored())

    assert report.warmup_steps == 1
    assert [(line.function, line.ms) for line in report.lines] == [("forward", pytest.approx(10.0))]

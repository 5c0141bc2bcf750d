"""What a loader comes to take, by the figures of the guides (corrected), and settings that fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.diagnose.memory import (
    TRAINER_BYTES,
    cache_outlook,
    find_safe_plan,
    judge_plan,
    memory_need,
    parse_size,
    shape_bytes,
)
from flatout.errors import FlatoutError
from flatout.records.memory import LoaderPlan, MachineLimits

GIB = 2**30
# A blurry and a sharp frame, and 32 bins of voxels.
FRAME = shape_bytes("720x1280x3:float32") * 2 + shape_bytes("32x720x1280:float32")
FRAMES = 2222
MACHINE = MachineLimits(256 * GIB, 200 * GIB, "host", 128 * GIB, 128 * GIB, 64.0)


def test_a_frame_is_what_the_guide_says() -> None:
    frame_mib, all_gib = FRAME / 2**20, FRAMES * FRAME / GIB

    assert frame_mib == pytest.approx(133.59, abs=0.01)
    assert all_gib == pytest.approx(290, abs=0.5)


def test_a_cache_in_the_dataset_exists_in_every_worker_of_every_rank() -> None:
    plan = LoaderPlan(FRAME, 1, workers=36, ranks=3, cache_bytes=290 * GIB, dataset_len=FRAMES)

    wanted = memory_need(plan)

    assert wanted.caches == 108
    assert wanted.cache_bytes / 2**40 == pytest.approx(30.6, abs=0.1)  # "31 TB"


def test_fifty_gigabytes_are_fifty_only_when_shared() -> None:
    own = LoaderPlan(FRAME, 1, workers=8, ranks=3, cache_bytes=50 * GIB)

    assert memory_need(own).cache_bytes == 24 * 50 * GIB
    assert memory_need(replace(own, cache_is_shared=True)).cache_bytes == 50 * GIB


def test_a_cache_never_holds_more_than_the_data() -> None:
    plan = LoaderPlan(1e6, 1, workers=2, cache_bytes=50e9, dataset_len=1000)

    assert memory_need(plan).cache_bytes == 2 * 1e9


def test_shared_memory_holds_what_is_under_way() -> None:
    wanted = memory_need(LoaderPlan(1e6, 16, workers=4, prefetch=4, ranks=2))

    assert wanted.batches_in_flight == 18
    assert wanted.shm_bytes == 18 * 16e6 * 2


def test_without_workers_no_shared_memory_is_used() -> None:
    assert memory_need(LoaderPlan(1e6, 16, workers=0)).shm_bytes == 0


@pytest.mark.parametrize(("share", "lru"), [(0.5, 0.153), (1.0, 1.0), (0.1, 0.0052)])
def test_what_lru_hits_when_shuffled(share: float, lru: float) -> None:
    plan = LoaderPlan(1e6, 1, workers=1, cache_bytes=share * 1e9, dataset_len=1000)

    view = cache_outlook(plan)

    assert view is not None and view.kept_hit_rate == pytest.approx(share)
    assert view.lru_hit_rate == pytest.approx(lru, abs=0.001)


def test_what_fits_is_left_as_it_is() -> None:
    plan = LoaderPlan(1e6, 16, workers=8, prefetch=2)

    verdict = judge_plan(plan, MACHINE)

    assert verdict.fits_ram and verdict.fits_shm and verdict.safe == plan


def test_dockers_64_megabytes_are_seen() -> None:
    docker = replace(MACHINE, shm_bytes=64 * 2**20, shm_free_bytes=64 * 2**20)

    verdict = judge_plan(LoaderPlan(0.6e6, 64, workers=8, prefetch=2), docker)

    assert verdict.fits_shm is False and verdict.fits_ram is True
    assert verdict.safe is not None and verdict.safe.workers == 0


def test_a_cache_per_worker_becomes_one_shared() -> None:
    plan = LoaderPlan(FRAME, 1, workers=8, ranks=3, cache_bytes=50 * GIB, dataset_len=FRAMES)

    chosen = find_safe_plan(plan, MACHINE)

    assert chosen is not None and chosen.cache_is_shared
    assert chosen.workers == 8 and 0 < chosen.cache_bytes <= 50 * GIB


def test_nothing_is_safe_where_a_batch_alone_is_too_much() -> None:
    assert find_safe_plan(LoaderPlan(500 * GIB, 1, workers=2), MACHINE) is None


@given(
    st.floats(1.0, 1e9),
    st.integers(1, 256),
    st.integers(0, 64),
    st.integers(1, 8),
    st.integers(1, 8),
    st.floats(0, 1e12),
    st.floats(1e9, 1e12),
)
def test_what_is_called_safe_fits(
    sample: float, batch: int, workers: int, prefetch: int, ranks: int, cache: float, free: float
) -> None:
    limits = MachineLimits(free, free, "host", free / 2, free / 2, 32.0)
    plan = LoaderPlan(sample, batch, workers, prefetch, ranks, cache_bytes=cache)

    chosen = find_safe_plan(plan, limits)

    if chosen is not None:
        assert memory_need(chosen).ram_bytes <= free and memory_need(chosen).shm_bytes <= free / 2
        assert chosen.workers <= workers and chosen.prefetch <= prefetch and chosen.batch == batch
    else:
        assert (
            memory_need(LoaderPlan(sample, batch, 0, 1, ranks)).ram_bytes > 0.8 * free
            or ranks * TRAINER_BYTES > 0.8 * free
        )


@pytest.mark.parametrize(
    ("text", "value"), [("3.4MB", 3.4e6), ("512KiB", 512 * 1024), ("50 gb", 50e9), ("7", 7.0), (".5k", 500.0)]
)
def test_sizes_are_read(text: str, value: float) -> None:
    assert parse_size(text, "--cache") == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "abc", "3.4XB", "-1MB", "1e400"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(FlatoutError, match="--cache must be a size"):
        parse_size(text, "--cache")


@pytest.mark.parametrize("text", ["", "3x", "3x0", "3x4:complex9", "axb"])
def test_what_is_no_shape_is_refused(text: str) -> None:
    with pytest.raises(FlatoutError, match="--shape"):
        shape_bytes(text)

"""The allocator's figures behind the findings about GPU memory."""

from __future__ import annotations

from tests.integration.watching import Watch


def test_peaks_of_allocated_and_split_memory_are_noted(watch: Watch) -> None:
    seen = watch("memory_peak.py")

    torch = seen.json["live"]["torch"]
    assert torch["memory_allocated_peak"] == seen.truth["allocated"]
    assert torch["memory_peak"] == seen.truth["reserved"]
    assert 0 <= torch["memory_split_peak"] < seen.truth["reserved"]
    assert torch["alloc_conf"] is None

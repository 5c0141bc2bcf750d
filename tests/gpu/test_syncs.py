"""Synchronisations are found with their line, and we add none."""

from __future__ import annotations

import pytest

from tests.integration.watching import Run, Watch, Watched, line_of

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def written(watch: Watch) -> Watched:
    return watch("sync_sites.py")


@pytest.mark.parametrize("op", ["item", "cpu", "tolist", "bool", "int", "float", "synchronize"])
def test_a_written_sync_is_found_with_its_line(written: Watched, op: str) -> None:
    (site,) = [site for site in written.json["syncs"] if site["op"] == op]

    assert site["location"]["file"].endswith("sync_sites.py")
    assert site["location"]["line"] == line_of("sync_sites.py", f"# SITE {op}")
    assert site["function"] == "metrics"
    assert site["per_step"] == pytest.approx(1, abs=0.1)


def test_the_time_of_syncs_is_a_phase_of_its_own(written: Watched) -> None:
    assert written.share("sync") > 0


@pytest.fixture(scope="module")
def hidden(watch: Watch) -> Watched:
    return watch("hidden_syncs.py")


@pytest.mark.parametrize("site", ["mask", "nonzero", "where", "repeat"])
def test_a_hidden_sync_is_found_with_its_line(hidden: Watched, site: str) -> None:
    lines = {s["location"]["line"]: s for s in hidden.json["syncs"] if s["op"] in ("hidden", "nonzero")}

    found = lines[line_of("hidden_syncs.py", f"# SITE {site}")]

    assert found["location"]["file"].endswith("hidden_syncs.py")
    assert found["per_step"] >= 0.9


def test_looking_for_hidden_syncs_leaves_no_trace(hidden: Watched) -> None:
    assert hidden.returncode == 0, hidden.stderr
    assert "synchronizing CUDA operation" not in hidden.stderr
    assert hidden.truth == {"steps": 63, "mode": 0, "filters": True, "show": True}


def test_no_synchronisation_of_ours(watch: Watch, run_bare: Run) -> None:
    assert run_bare("strict.py").returncode == 0

    seen = watch("strict.py")

    assert seen.returncode == 0, seen.stderr
    assert seen.step_count == 200
    assert seen.json["syncs"] == []


def test_copies_to_the_device(watch: Watch) -> None:
    seen = watch("copies.py")

    sites = {site["location"]["line"]: site for site in seen.json["copies"]}
    pinned = sites[line_of("copies.py", "# SITE pinned")]
    pageable = sites[line_of("copies.py", "# SITE pageable")]
    assert pinned["per_step"] == pytest.approx(1, abs=0.05)
    assert pinned["bytes_per_step"] == pytest.approx(16 * 64 * 4, rel=0.05)
    assert (pinned["pinned_share"], pinned["non_blocking_share"]) == (1.0, 1.0)
    assert pageable["bytes_per_step"] == pytest.approx(16 * 4 * 4, rel=0.05)
    assert (pageable["pinned_share"], pageable["non_blocking_share"]) == (0.0, 0.0)
    assert seen.share("h2d") > 0


def test_of_many_small_copies_all_are_counted(watch: Watch) -> None:
    seen = watch("many_copies.py")

    sites = {site["location"]["line"]: site for site in seen.json["copies"]}
    pieces = sites[line_of("many_copies.py", "# SITE pieces")]
    scale = sites[line_of("many_copies.py", "# SITE scale")]
    assert pieces["per_step"] == pytest.approx(200, rel=0.02)
    assert pieces["bytes_per_step"] == pytest.approx(200 * 16, rel=0.02)
    assert (pieces["pinned_share"], pieces["non_blocking_share"]) == (0, 0)
    # The loop around the copies is in the truth too.
    assert 0.5 * seen.truth["copying_ms"] < pieces["ms"] <= 1.05 * seen.truth["copying_ms"]
    assert scale["per_step"] == pytest.approx(1, abs=0.05)

"""What the tensors of a training tell: the type it computes in, and gradients that are mostly zero."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flatout.diagnose.summary import examine_run
from tests.integration.watching import Run, Watch, Watched, line_of

OFTEN = json.dumps({"window_budget": 100.0, "window_often": True})


def test_computing_in_float64_is_seen_and_timed(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("tensors.py", "wide")
    seen = watch("tensors.py", "wide")

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.losses == bare.losses
    state = seen.json["live"]["torch"]
    assert state["grad_elements"] == {"float64": 1.0}
    assert set(state["float64_factors"]) == {"product", "elementwise"}
    assert seen.json["live"]["optimizers"][0]["bytes"] == {"float64": 8 * 2 * (512 * 512 + 512)}
    place = examine_run(seen.stored).float64_at
    assert place is not None
    assert (Path(place.file).name, place.line) == ("tensors.py", line_of("tensors.py", "# WIDE"))


def test_a_loss_in_float64_is_next_to_nothing(watch: Watch) -> None:
    seen = watch("tensors.py", "narrow")

    assert seen.json["live"]["torch"]["grad_elements"]["float64"] < 0.001
    assert "CO516" not in {finding["code"] for finding in seen.json["findings"]}


def tables_of(seen: Watched) -> list[dict[str, Any]]:
    windows = [value for recording in seen.trainings for value in recording.values("window")]
    assert windows
    return [table for window in windows for table in window["tables"]]


def test_a_table_with_a_dense_gradient_is_told_with_the_line_that_made_it(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("tensors.py", "dense")
    seen = watch("tensors.py", "dense", FLATOUT_SETTINGS=OFTEN)

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.losses == bare.losses
    tables = tables_of(seen)
    assert {(table["elements"], table["picked"], table["uses"]) for table in tables} == {(50_000 * 32, 64 * 32, 1)}
    assert {table["optimizer"] for table in tables} == {"torch.optim.adagrad.Adagrad"}
    assert sum(table["backward_ms"] for table in tables) > 0  # of a window that others disturbed all may be lost time
    (told,) = examine_run(seen.stored).picked_tables
    assert (Path(told.location.file).name, told.location.line) == ("tensors.py", line_of("tensors.py", "# TABLE"))


def test_nothing_is_said_of_a_table_with_sparse_gradients(watch: Watch) -> None:
    seen = watch("tensors.py", "sparse", FLATOUT_SETTINGS=OFTEN)

    assert tables_of(seen) == []
    assert "CO517" not in {finding["code"] for finding in seen.json["findings"]}


def test_results_that_the_loss_does_not_read_are_found_at_their_line(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("tensors.py", "masked")
    seen = watch("tensors.py", "masked", FLATOUT_SETTINGS=OFTEN)

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.losses == bare.losses
    lines = {line.location.line: line for line in examine_run(seen.stored).heavy_lines}
    told = lines[line_of("tensors.py", "# MODEL")]
    # The second layer's results, and all that comes before them: each row goes its own way.
    assert told.unread_share == pytest.approx(7 / 8)
    assert told.factors == ()
    assert "CO519" in {finding["code"] for finding in seen.json["findings"]}


def test_results_that_are_read_are_left_alone(watch: Watch) -> None:
    seen = watch("tensors.py", "read", FLATOUT_SETTINGS=OFTEN)

    assert {line.unread_share for line in examine_run(seen.stored).heavy_lines} == {0.0}
    assert not {"CO518", "CO519"} & {finding["code"] for finding in seen.json["findings"]}


def test_a_nearly_empty_matrix_is_timed_dense_and_sparse(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("tensors.py", "graph")
    seen = watch("tensors.py", "graph", FLATOUT_SETTINGS=OFTEN)

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.losses == bare.losses
    lines = {line.location.line: line for line in examine_run(seen.stored).heavy_lines}
    (factor,) = lines[line_of("tensors.py", "# GRAPH")].factors
    assert factor.size == (1500, 1500, 64)
    assert factor.density == pytest.approx(1 / 1500, rel=0.01)
    assert factor.uses == 1.0
    assert factor.dense_ms is not None and factor.sparse_ms is not None and factor.sparse_ms < factor.dense_ms
    (found,) = [finding for finding in seen.json["findings"] if finding["code"] == "CO518"]
    assert found["location"]["line"] == line_of("tensors.py", "# GRAPH")


def test_numbers_too_small_for_the_quick_path_are_timed(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("tensors.py", "fading")
    seen = watch("tensors.py", "fading", FLATOUT_SETTINGS=OFTEN)

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.losses == bare.losses
    lines = {line.location.line: line for line in examine_run(seen.stored).heavy_lines}
    (found,) = lines[line_of("tensors.py", "# MODEL")].subnormals
    assert (found.shape, found.uses) == ((256, 512), 1.0)
    assert found.share == pytest.approx(1 / 16, rel=0.2)
    assert found.slow_ms is not None and found.quick_ms is not None
    # Some processors compute them at full speed: there nothing is to be gained.
    if found.slow_ms > 5 * found.quick_ms:
        (finding,) = [each for each in seen.json["findings"] if each["code"] == "CO521"]
        assert finding["location"]["line"] == line_of("tensors.py", "# MODEL")
        assert finding["remedy"] == "precision.flush_denormal"


def test_parts_that_are_picked_one_by_one_are_found_at_their_line(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("tensors.py", "picked")
    seen = watch("tensors.py", "picked", FLATOUT_SETTINGS=OFTEN)

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.losses == bare.losses
    (told,) = examine_run(seen.stored).picked_parts
    assert told.location.line == line_of("tensors.py", "# PICKS")
    assert (told.tensors, told.count, told.elements, told.picked) == (1.0, 100.0, 4 * 100 * 512, 4 * 100 * 512)
    assert told.backward_ms > 0
    (finding,) = [each for each in seen.json["findings"] if each["code"] == "CO522"]
    assert finding["location"]["line"] == told.location.line


def test_a_tensor_that_is_taken_apart_at_once_is_left_alone(watch: Watch) -> None:
    seen = watch("tensors.py", "unbound", FLATOUT_SETTINGS=OFTEN)

    assert examine_run(seen.stored).picked_parts == ()
    assert "CO522" not in {finding["code"] for finding in seen.json["findings"]}


def test_pairs_that_are_formed_and_summed_are_timed_beside_a_product(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("tensors.py", "pairs")
    seen = watch("tensors.py", "pairs", FLATOUT_SETTINGS=OFTEN)

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.losses == bare.losses
    (pairs,) = examine_run(seen.stored).summed_pairs
    assert [location.line for location in pairs.locations] == [line_of("tensors.py", "# PAIRS")]
    assert ({pairs.rows, pairs.columns}, pairs.values, pairs.uses) == ({64, 400}, 64, 1.0)
    assert pairs.formed_ms is not None and pairs.multiplied_ms is not None
    assert pairs.multiplied_ms < pairs.formed_ms
    (finding,) = [each for each in seen.json["findings"] if each["code"] == "CO523"]
    assert finding["location"]["line"] == pairs.locations[0].line


def test_products_with_one_matrix_are_timed_beside_a_single_one(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("tensors.py", "spread")
    seen = watch("tensors.py", "spread", FLATOUT_SETTINGS=OFTEN)

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.losses == bare.losses
    (form,) = examine_run(seen.stored).other_forms
    assert (form.kind, form.sizes, form.uses) == ("product", (256, 64, 64, 1), 1.0)
    assert form.locations[0].line == line_of("tensors.py", "# MIX")
    assert form.now_ms is not None and form.other_ms is not None
    assert sum(form.other_ms) < sum(form.now_ms)
    (finding,) = [each for each in seen.json["findings"] if each["code"] == "CO525"]
    assert finding["location"]["line"] == line_of("tensors.py", "# MIX")
    assert 1.0 < finding["predicted_gain"]["mid"] < 20.0


def test_a_chain_of_products_is_timed_beside_its_cheapest_order(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("tensors.py", "chain")
    seen = watch("tensors.py", "chain", FLATOUT_SETTINGS=OFTEN)

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.losses == bare.losses
    (form,) = examine_run(seen.stored).other_forms
    assert (form.kind, form.sizes, form.options) == ("chain", (1, 400, 400, 400, 16), (2, 1, 1, 2))
    assert form.now_ms is not None and form.other_ms is not None
    assert sum(form.other_ms) < sum(form.now_ms)
    (finding,) = [each for each in seen.json["findings"] if each["code"] == "CO525"]
    assert finding["location"]["line"] == line_of("tensors.py", "# CHAIN")
    assert finding["predicted_gain"]["mid"] > 1.0


def test_products_with_a_matrix_for_each_are_left_alone(watch: Watch) -> None:
    seen = watch("tensors.py", "several", FLATOUT_SETTINGS=OFTEN)

    assert examine_run(seen.stored).other_forms == ()
    assert "CO525" not in {finding["code"] for finding in seen.json["findings"]}

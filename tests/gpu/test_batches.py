"""What is read off copies and graphs on a GPU: types wider than their values, and the layout of convolutions."""

from __future__ import annotations

import pytest

from flatout.diagnose.ranks import training_ranks
from flatout.diagnose.workers import narrow_copies
from tests.integration.watching import Run, Watch, Watched, line_of

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def seen(watch: Watch) -> Watched:
    return watch("wide.py")


def test_values_that_a_narrower_type_would_hold(seen: Watched) -> None:
    found = {one.location.line: one for one in narrow_copies(training_ranks(seen.stored))}

    pictures, table = (found[line_of("wide.py", f"# SITE {name}")] for name in ("pictures", "table"))
    assert (pictures.dtype, pictures.narrow, pictures.saved_share) == ("float32", "uint8", 0.75)
    assert (table.dtype, table.narrow, table.saved_share) == ("float64", "float32", 0.5)
    assert line_of("wide.py", "# SITE noise") not in found


def test_looking_changes_nothing(seen: Watched, run_bare: Run) -> None:
    assert seen.returncode == 0 and "stopped watching" not in seen.notices
    assert seen.losses == run_bare("wide.py").losses


def test_the_layout_of_convolutions(seen: Watched, watch: Watch) -> None:
    first, last = (one.json["live"]["torch"]["convolution_layouts"] for one in (seen, watch("wide.py", "--last")))

    # Where torch does not tell what it saved, the layout is not known.
    assert first in ({"channels_first bfloat16": 1.0}, {"unknown bfloat16": 1.0})
    assert last in ({"channels_last bfloat16": 1.0}, {"unknown bfloat16": 1.0})

"""The operations of one step of a real training, recorded in its process."""

from __future__ import annotations

import json

from flatout.diagnose.ranks import training_ranks
from flatout.diagnose.work import work_shares
from tests.integration.watching import Run, Watch

ON_CPU = {"operations_of": "cpu", "operations_budget": 100.0}


def test_the_training_is_the_same_to_the_bit(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("window.py")
    seen = watch("window.py", FLATOUT_SETTINGS=json.dumps(ON_CPU))

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.losses == bare.losses
    assert seen.truth == bare.truth, "something was left behind, or the random state moved"
    assert "profiler" not in seen.stderr
    assert [value for recording in seen.trainings for value in recording.values("operations")]


def test_the_work_of_a_step_is_in_the_run(watch: Watch) -> None:
    seen = watch("padded.py", FLATOUT_SETTINGS=json.dumps({**ON_CPU, "operations_memory": True}))

    assert seen.returncode == 0, seen.stderr
    shares = {share.kind: share for share in work_shares(training_ranks(seen.stored))}
    # 8 rows of 64 tokens through 512 by 512, forward and twice backward.
    assert shares["gemm"].flops == 3 * 2 * 8 * 64 * 512 * 512
    # 2 images of 256 places; the image itself needs no gradient.
    assert shares["convolution"].flops == 2 * 2 * 2 * 256 * 8 * 8 * 9
    assert shares["pointwise"].fused_bytes is not None and shares["pointwise"].bytes > 0

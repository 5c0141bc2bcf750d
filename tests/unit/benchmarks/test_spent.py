from __future__ import annotations

import json
from pathlib import Path

from benchmarks.common.spent import by_kind, each, spent
from flatout.records.message import verbatim
from flatout.records.report import RemedyState
from flatout.records.trial import Trial
from flatout.words.codec import encode

_REFUSED = RemedyState("sync.skip", "lossless", True, "refused", verbatim("nothing waits"))
_TRIALS = (
    Trial("as it is", {}, "stopped", step_s=(0.1,) * 20, wall_s=5.0),
    Trial("as it is", {}, "stopped", step_s=(0.1,) * 20, wall_s=6.0),
    Trial("sync.skip", {"sync.skip": True}, "crashed", verbatim("boom"), wall_s=3.0, states=(_REFUSED,)),
)


def test_the_time_of_a_search_is_told_by_trial_and_by_kind(tmp_path: Path) -> None:
    for place, trial in enumerate(_TRIALS):
        (tmp_path / str(place)).mkdir()
        (tmp_path / str(place) / "trial.json").write_text(json.dumps(encode(trial)))

    found = sorted(spent(tmp_path), key=lambda one: one.wall_s, reverse=True)

    assert "| as it is | – | stopped | 20 | 100 | 4.0 | 6.0 |  |" in each(found)
    assert "| sync.skip | sync.skip=True | crashed (boom) | 0 | – | 3.0 | 3.0 | sync.skip refused: nothing waits |" in (
        each(found)
    )
    assert by_kind(found, took_s=15.0).splitlines()[2:] == [
        "| as it is | 2 | 7 | 11 |",
        "| a remedy | 1 | 3 | 3 |",
        "| between trials |  |  | 1 |",
    ]

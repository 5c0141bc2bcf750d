"""What became of the remedies that a profile asked for: the last word of the first rank on each."""

from __future__ import annotations

from collections.abc import Sequence

from flatout.diagnose.ranks import Rank, first_recordings
from flatout.records.report import RemedyState
from flatout.store.run import StoredRun


def remedy_states(run: StoredRun, ranks: Sequence[Rank]) -> tuple[RemedyState, ...]:
    latest: dict[str, RemedyState] = {}
    for recording in first_recordings(run, ranks):
        for value in recording.values("remedy"):
            if isinstance(value, dict) and isinstance(value.get("id"), str):
                live = value.get("live")
                latest[value["id"]] = RemedyState(
                    id=value["id"],
                    safety=str(value.get("safety", "")),
                    value=value.get("value"),
                    state=str(value.get("state", "")),
                    why=str(value.get("why", "")),
                    step=int(value.get("step") or 0),
                    live=live if isinstance(live, dict) else {},
                )
    return tuple(latest.values())

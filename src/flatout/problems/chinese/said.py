"""What all detectors say of a run, in Chinese: templates with gaps, by their English ones.

A gap {n} takes a number, {} whatever stands there; what a gap takes may be one of these again.
"""

from __future__ import annotations

from flatout.problems.chinese.said_cadence import SAID_CADENCE
from flatout.problems.chinese.said_compute import SAID_COMPUTE
from flatout.problems.chinese.said_config import SAID_CONFIG
from flatout.problems.chinese.said_host import SAID_HOST
from flatout.problems.chinese.said_input import SAID_INPUT
from flatout.problems.chinese.said_memory import SAID_MEMORY
from flatout.problems.chinese.said_rank import SAID_RANK
from flatout.problems.chinese.said_sync import SAID_SYNC
from flatout.problems.chinese.said_transfer import SAID_TRANSFER

SAID: dict[str, str] = {
    **SAID_CADENCE,
    **SAID_COMPUTE,
    **SAID_CONFIG,
    **SAID_HOST,
    **SAID_INPUT,
    **SAID_MEMORY,
    **SAID_RANK,
    **SAID_SYNC,
    **SAID_TRANSFER,
}

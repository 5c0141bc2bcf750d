"""Words that many areas use."""

from __future__ import annotations

from flatout.words.table import Words

TABLE: dict[str, Words] = {
    "out_of_memory": Words("out of memory", "内存不足"),
}

"""Words that many areas use."""

from __future__ import annotations

from flatout.words.table import Words

TABLE: dict[str, Words] = {
    "out_of_memory": Words("out of memory", "内存不足"),
    "memo.only_computes": Words(
        "{cause}; it only computes, and the same samples come again", "{cause}；它只做计算，而且同样的样本会再次出现"
    ),
}

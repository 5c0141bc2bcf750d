"""What is read in source, in words: what a value is called where it is written."""

from __future__ import annotations

from flatout.words.table import Words

TABLE = {
    "source.default": Words("the default of {name}", "{name} 的默认值"),
    "source.default_in": Words("the default of {name} in {function}()", "{function}() 中 {name} 的默认值"),
}

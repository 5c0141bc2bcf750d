"""`--knob NAME=VALUES`: remedies, flags and keys of config files, and one line for what cannot be understood."""

from __future__ import annotations

from typing import Any

import pytest

from flatout.errors import FlatoutError
from flatout.experiment.tuning.knobs import distinct, parse_knob
from flatout.records.tune import Knob


@pytest.mark.parametrize(
    ("word", "kind", "target", "values"),
    [
        ("batch_size=4,6,8,16", "remedy", "batch_size", (4, 6, 8, 16)),
        ("workers=auto", "remedy", "workers", ("auto",)),
        ("workers=8..11", "remedy", "workers", (8, 9, 10, 11)),
        ("batch_size=8..64..16", "remedy", "batch_size", (8, 24, 40, 56)),
        ("--window=8,7,6", "flag", "--window", (8, 7, 6)),
        ("--lr=1e-3,0.1,08,0.10", "flag", "--lr", ("1e-3", 0.1, "08", "0.10")),
        ("-j=2,4", "flag", "-j", (2, 4)),
        ("config.yaml:MODEL.DEPTHS=[2,2],[4, 4]", "config", "MODEL.DEPTHS", ("[2,2]", "[4, 4]")),
        ("c.json:name='a,b',\"c\"", "config", "name", ("'a,b'", '"c"')),
    ],
)
def test_what_is_written_is_what_is_meant(word: str, kind: str, target: str, values: tuple[Any, ...]) -> None:
    knob = parse_knob(word)

    assert (knob.kind, knob.target, knob.values) == (kind, target, values)


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("workers", "write it as"),
        ("=4", "write it as"),
        ("workers=", "an empty value"),
        ("workers=4,,8", "an empty value"),
        ("workers=4,8,4", "names the value 4 twice"),
        ("workers=8..4", "must go upwards"),
        ("workers=0..99999999", "at most 10,000 values"),
        ("c.yaml:A=[1,2", "not closed"),
        ("c.yaml:A='x", "not closed"),
        ("notes.txt:A=1,2", "'notes.txt' is no config file"),
        ("c.yaml:=1,2", "is no config file"),
    ],
)
def test_a_mistake_is_quoted(word: str, says: str) -> None:
    with pytest.raises(FlatoutError, match=says) as raised:
        parse_knob(word)

    assert repr(word) in str(raised.value) and "\n" not in str(raised.value)


def test_two_knobs_for_one_thing_are_a_mistake() -> None:
    two = [
        Knob("workers", "remedy", "loader.workers", (1,), "lossless"),
        Knob("num_workers", "remedy", "loader.workers", (2,), "lossless"),
    ]

    with pytest.raises(FlatoutError, match="--knob num_workers is given twice"):
        distinct(two)

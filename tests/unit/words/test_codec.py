"""Records with messages in them, as JSON and back."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from flatout.records.message import NOTHING, Message, message, verbatim
from flatout.words.codec import decode, encode, with_messages
from flatout.words.render import english

FULL = message("out_of_memory")


@dataclass(frozen=True, slots=True)
class Inner:
    why: Message
    rate: float = 1.0


@dataclass(frozen=True, slots=True)
class Outer:
    name: str
    inner: tuple[Inner, ...]
    notices: tuple[Message, ...] = ()
    failures: dict[str, Message] = field(default_factory=dict)
    best: Inner | None = None
    pair: tuple[int, int] = (0, 0)
    kind: Literal["a", "b"] = "a"
    rest: dict[str, Any] = field(default_factory=dict)


WHOLE = Outer(
    "x",
    (Inner(verbatim("as it was")), Inner(FULL, 2.5)),
    (FULL, verbatim("plain")),
    {"a/b~c": FULL},
    Inner(FULL),
    (1, 2),
    "b",
)


def through_text(value: object) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


def test_sentences_stand_where_they_stood_and_facts_beside_them() -> None:
    value = encode(WHOLE)

    assert value["inner"] == [{"why": "as it was", "rate": 1.0}, {"why": "out of memory", "rate": 2.5}]
    assert list(value)[-1] == "facts"
    full = [pointer for pointer, fact in value["facts"].items() if fact == {"id": "out_of_memory", "args": {}}]
    assert full == ["/inner/1/why", "/notices/0", "/failures/a~1b~0c", "/best/why"]
    assert set(value["facts"]) - set(full) == {"/inner/0/why", "/notices/1"}


def test_a_record_is_the_same_after_json() -> None:
    assert decode(Outer, through_text(encode(WHOLE))) == WHOLE


def test_without_messages_there_are_no_facts() -> None:
    assert "facts" not in encode(Outer("x", (Inner(NOTHING),)))


def test_json_without_facts_keeps_its_sentences() -> None:
    value = through_text(encode(WHOLE))
    del value["facts"]

    old = decode(Outer, value)

    assert old.inner[1].why == old.notices[0] == verbatim("out of memory")


def test_facts_that_point_nowhere_are_left_alone() -> None:
    fact = {"id": "out_of_memory", "args": {}}
    value = {"name": "x", "n": 1, "facts": {"/gone/0": fact, "/n": fact, "/name/0": fact, "": fact, "/name": fact}}

    assert with_messages(value) == {"name": FULL, "n": 1}


def test_figures_that_json_has_not() -> None:
    fact = Message("x", {"low": -math.inf, "pair": (math.inf, 1.5)})

    value = through_text(encode({"why": fact, "rate": math.nan}))

    assert value["rate"] is None and with_messages(value)["why"] == fact
    assert math.isnan(encode({"rate": math.nan}, only_finite=False)["rate"])


def test_what_a_newer_flatout_added_is_left_out() -> None:
    value = through_text(encode(WHOLE)) | {"invented": 1}
    value["best"]["invented"] = 1

    assert decode(Outer, value) == WHOLE


@pytest.mark.parametrize(
    ("name", "value"), [("name", 3), ("inner", 1), ("inner", [1]), ("pair", [1]), ("kind", "c"), ("best", {})]
)
def test_what_was_changed_by_hand_is_refused(name: str, value: object) -> None:
    with pytest.raises(TypeError):
        decode(Outer, through_text(encode(WHOLE)) | {name: value})


def test_words_of_a_newer_flatout_are_taken_where_nobody_minds() -> None:
    value = through_text(encode(WHOLE)) | {"kind": "c"}

    assert decode(Outer, value, strict=False).kind == "c"  # type: ignore[comparison-overlap]


def test_an_unknown_message_is_shown_by_its_id() -> None:
    assert "from.tomorrow" in english(Message("from.tomorrow", {"n": 3}))

"""What may be written behind a remedy's name."""

from __future__ import annotations

import pytest

from flatout.remedies.values import Choice, Count, Flag, Options, Size, Text, Value


@pytest.mark.parametrize(
    ("value", "written", "read"),
    [
        (Flag(), True, True),
        (Flag(), "off", False),
        (Count(0, 64), 8, 8),
        (Count(0, 64), "8", 8),
        (Count(0, 64, auto=True), "auto", "auto"),
        (Count(0, 64, auto=True), True, "auto"),
        (Choice(("default", "max-autotune")), "max-autotune", "max-autotune"),
        (Choice(("default", "max-autotune")), True, "default"),
        (Choice(("default", "max-autotune")), False, False),
        (Size(), "20GB", 20 << 30),
        (Size(), "1.5 MiB", 3 << 19),
        (Size(), 4096, 4096),
        (Size(), "auto", "auto"),
        (Text(r"\w+:\w+=\d+", "module:function=N"), "a:b=3", "a:b=3"),
        (Options({"budget": Size()}, {"budget": "auto"}), True, {"budget": "auto"}),
        (Options({"budget": Size(), "on": Flag()}), "budget=1KB,on=yes", {"budget": 1024, "on": True}),
        (Options({"budget": Size()}), {"budget": "1KB"}, {"budget": 1024}),
    ],
)
def test_what_is_written_is_read(value: Value, written: object, read: object) -> None:
    assert value.read(written) == read


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Flag(), "maybe"),
        (Count(0, 64), 65),
        (Count(0, 64), "auto"),
        (Count(0, 64), 2.5),
        (Count(0, 64), True),
        (Choice(("default",)), "fast"),
        (Size(), "many"),
        (Size(), False),
        (Text(r"\w+", "a word"), "two words"),
        (Options({"budget": Size()}), {"bugdet": "1KB"}),
        (Options({"budget": Size()}), {"budget": "x"}),
        (Options({"budget": Size()}), "nonsense"),
    ],
)
def test_anything_else_is_refused_with_what_may_be_written(value: Value, written: object) -> None:
    with pytest.raises(ValueError, match=r"must be|has no option"):
        value.read(written)

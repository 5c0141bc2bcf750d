"""Where workers share samples out that each of them has made."""

from __future__ import annotations

import textwrap

import pytest

from flatout.problems.input.made_in_vain import shared_out_late

_HEAD = """
def parse(line):
    return split(line)

def split(line):
    return line.split()

def mine(number):
    return number % get_worker_info().num_workers == get_worker_info().id

"""


@pytest.mark.parametrize(
    "loop",
    [
        """
        for number, line in enumerate(lines):
            review = parse(line)
            if number % workers == worker:
                yield review
        """,
        """
        for number, line in enumerate(lines):
            review = parse(line)
            if number % workers != worker:
                continue
            yield review
        """,
        """
        for number, review in enumerate(map(parse, lines)):
            if number % workers == worker:
                yield review
        """,
        """
        for number, line in enumerate(lines):
            review = parse(line)
            if mine(number):
                yield review
        """,
    ],
)
def test_what_is_called_before_it_is_asked_is_found_with_what_that_calls(loop: str) -> None:
    ((line, before),) = shared_out_late(_HEAD + textwrap.dedent(loop))

    text = (_HEAD + textwrap.dedent(loop)).splitlines()
    assert "if " in text[line - 1]
    assert {number for lines in before for number in lines} >= {2, 3, 5, 6}


@pytest.mark.parametrize(
    "loop",
    [
        """
        for number, line in enumerate(lines):
            if number % workers == worker:
                yield parse(line)
        """,
        # It may be asked before, and is not a matter of workers, respectively.
        """
        for number, line in enumerate(lines):
            if early and number % workers != worker:
                continue
            review = parse(line)
            if number % workers == worker:
                yield review
        """,
        """
        for number, line in enumerate(lines):
            review = parse(line)
            if number % 100 == 0:
                yield review
        """,
        """
        for number, line in enumerate(lines):
            review = parse(line)
            if review.size % workers == 0:
                kept.append(review)
        """,
    ],
)
def test_else_nothing_is(loop: str) -> None:
    assert shared_out_late(_HEAD + textwrap.dedent(loop)) == ()
    assert shared_out_late(textwrap.dedent(loop)) == ()  # nobody asks which worker it is

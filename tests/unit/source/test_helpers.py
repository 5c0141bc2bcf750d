"""Which functions of a file only serve another."""

from __future__ import annotations

from flatout.source.helpers import helpers_of

BOARD = """
def update(step):
    for net in nets:
        histograms(net)
    save(step)

def histograms(net):
    return edges(net)

def edges(net):
    return shared(net)

def shared(net):
    return net

def save(step):
    pass

shared(1)
save(2)
"""


def test_what_nobody_else_calls_is_found_through_others() -> None:
    assert helpers_of(BOARD, "update") == {"histograms", "edges"}
    assert helpers_of(BOARD, "histograms") == {"edges"}


def test_methods_count_and_what_is_no_python_has_none() -> None:
    text = "class Board:\n    def update(self):\n        self.draw()\n    def draw(self):\n        pass\n"

    assert helpers_of(text, "update") == {"draw"}
    assert helpers_of("def f(:", "f") == set()
    assert helpers_of(BOARD, "missing") == set()

"""Which functions of a file only serve another."""

from __future__ import annotations

from flatout.problems.cadence.pause_costs import exclusive_helpers

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
    assert exclusive_helpers(BOARD, "update") == {"histograms", "edges"}
    assert exclusive_helpers(BOARD, "histograms") == {"edges"}


def test_methods_count_and_what_is_no_python_has_none() -> None:
    text = "class Board:\n    def update(self):\n        self.draw()\n    def draw(self):\n        pass\n"

    assert exclusive_helpers(text, "update") == {"draw"}
    assert exclusive_helpers("def f(:", "f") == set()
    assert exclusive_helpers(BOARD, "missing") == set()

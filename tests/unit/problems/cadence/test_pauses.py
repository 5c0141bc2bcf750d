"""Which functions of a file only serve another, and what is done together with a pause."""

from __future__ import annotations

from flatout.problems.cadence.pauses import exclusive_helpers, guarded_blocks

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


DRAWS = """
def draw(sample):
    save(sample)

for step, batch in enumerate(loader):
    train(batch)
    if step % every == 0:
        with torch.no_grad():
            sample = net(noise)
        draw(sample)
    if verbose:
        report(step)
"""


def test_what_is_done_under_one_condition_with_a_pause_is_found() -> None:
    nothing: frozenset[str] = frozenset()

    assert guarded_blocks(DRAWS, frozenset({"draw"}), frozenset()) == (range(8, 11),)
    assert guarded_blocks(DRAWS, nothing, frozenset({12})) == (range(12, 13),)
    # Not all of the loop, and not what is elsewhere.
    assert guarded_blocks(DRAWS, frozenset({"train"}), frozenset({3})) == ()

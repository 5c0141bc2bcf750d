"""Which functions of a file only serve another, and what is done together with a pause."""

from __future__ import annotations

import pytest

from flatout.problems.cadence.pauses import exclusive_helpers, guarded_blocks, periodic_blocks

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


def test_a_block_of_every_nth_step_is_found_if_nothing_else_reads_what_it_makes() -> None:
    assert periodic_blocks(DRAWS) == (range(8, 11),)


@pytest.mark.parametrize(
    "body",
    [
        "            sample = net(noise)\n        loss = criterion(sample)",  # bound there, read in the loop
        "            pool.append(net(noise))\n        train_on(pool)",
        "            pool[0] = net(noise)\n        train_on(pool)",
        "            self.batch = rollout()\n        learn(self.batch)",
        "            self.pool.extend(rollout())\n        learn(self.pool)",
    ],
)
def test_what_the_loop_reads_is_its_own_work(body: str) -> None:
    text = f"def fit(self):\n    for step in range(9):\n        if step % 3 == 0:\n{body}\n"

    assert periodic_blocks(text) == ()


def test_what_is_read_after_the_loop_or_by_itself_is_not() -> None:
    text = """
def fit(net):
    best = 0.0
    for step in range(9):
        if (step + 1) % 3 == 0:
            best = max(best, score(net))
            if step % 6 == 0:
                show(net)
    return best
"""
    assert periodic_blocks(text) == (range(6, 9),)


WATCHED = """
class Watch:
    def after(self, step):
        if step %% self.every:
            return
        score = judge(self.model)
        if score < self.best:
            self.best, self.kept = score, copy(self.model)

def fit(model, batches):
    watch = Watch(model)
    for step, batch in enumerate(batches):
        loss = model(batch)
        loss.backward()
        watch.after(step)%s
    return watch.kept
"""


def test_what_follows_where_all_other_steps_leave_is_found() -> None:
    assert periodic_blocks(WATCHED % "") == (range(6, 9),)
    # The next epoch goes by it.
    assert periodic_blocks(WATCHED.replace("return watch.kept", "scheduler.step(watch.best); watch.kept") % "") == ()
    # The training reads what it makes.
    assert periodic_blocks(WATCHED % "\n        model = watch.kept") == ()


def test_the_rest_of_a_loop_that_most_steps_leave_out_is_found() -> None:
    text = "for step in all:\n    train(step)\n    if step % 3:\n        continue\n    judge(step)\n    show(step)\n"

    assert periodic_blocks(text) == (range(5, 7),)
    # It does something else in these steps, so that what follows is no exception.
    assert periodic_blocks(text.replace("        continue", "        rest(step)\n        continue")) == (range(4, 6),)

"""Whether a loader is gone through again and again."""

from __future__ import annotations

import textwrap

import pytest

from flatout.source.code import Code
from flatout.source.loops import find_epoch_loop, find_text_loops, known_workers
from flatout.source.project.loading import load_texts


def repeated_in(text: str) -> int | None:
    """The line of the loop that goes through the only loader again."""
    code = Code(load_texts({"train.py": textwrap.dedent(text)}))
    (loader,) = code.loaders
    found = find_epoch_loop(loader, code)
    return None if found is None else found[0].lineno


_STEP = """
    def step(model, batches):
        for batch in tqdm(batches):
            model(batch).backward()
            optimizer.step()
"""


def test_a_loop_around_the_training_loop() -> None:
    text = """
        loader = DataLoader(data)
        for epoch in range(9):
            for batch in loader:
                model(batch).backward()
                optimizer.step()
    """
    assert repeated_in(text) == 3


def test_a_loop_around_the_call_that_trains() -> None:
    assert repeated_in(_STEP + "\n    loader = DataLoader(data)\n    while True:\n        step(model, loader)\n") == 8
    assert repeated_in(_STEP + "\n    step(model, DataLoader(data))\n") is None


def test_what_is_made_anew_is_not_repeated() -> None:
    made = "\n    def make():\n        return DataLoader(data)\n    for fold in folds:\n        step(model, make())\n"
    assert repeated_in(_STEP + made) is None


def test_a_generator_that_begins_again() -> None:
    text = """
        def forever(loader):
            while True:
                for batch in loader:
                    yield batch

        batches = forever(DataLoader(data))
        for step in range(100):
            model(next(batches)).backward()
            optimizer.step()
    """
    assert repeated_in(text) == 3


@pytest.mark.parametrize(
    ("given", "workers"),
    [
        ("", 0),
        ("num_workers=0", 0),
        ("num_workers=4", 4),
        ("num_workers=min(os.cpu_count(), 8)", 1),
        ("num_workers=n", None),
    ],
)
def test_how_many_workers(given: str, workers: int | None) -> None:
    text = f"for batch in DataLoader(data, {given}):\n    model(batch).backward()\n    optimizer.step()\n"
    code = Code(load_texts({"train.py": text}))

    assert known_workers(code.loaders[0], code) == workers


def test_what_a_loop_goes_over_is_computed_once_but_for_generators() -> None:
    text = """
        def compute(): return scores.sum(0)
        def rows():
            yield from scores
        def show(score): print(score)

        for name, score in zip(names, compute().tolist()):
            show(score)
        found = [score for score in rows() if compute() > score]
    """
    loops = find_text_loops(textwrap.dedent(text))

    assert [set(loop.calls) for loop in loops] == [{"show"}, {"rows", "compute"}]


def test_a_loop_that_puts_together_what_many_modules_give() -> None:
    text = """
        for number, head in enumerate(self.heads):
            out[store == number] = head(x[store == number])
        outs = [head(x) for head in self.heads]
        for layer in self.layers:
            x = layer(x)
        for level in self.down:
            x = level(x)
            kept.append(x)
        for callback in callbacks:
            callback(trainer)
    """
    loops = find_text_loops(textwrap.dedent(text))

    kinds = {loop.first: loop.kind for loop in loops}
    assert kinds == {2: "modules", 4: "modules", 5: "other", 7: "other", 10: "other"}

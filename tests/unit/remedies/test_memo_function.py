"""A function's results are kept: same values, copies of one's own, and an end to it when a rule is broken."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from flatout.records.message import Message
from flatout.remedies.catalogue import known
from flatout.remedies.memo import call_key as asked
from flatout.remedies.memo import kept_calls as carried
from flatout.remedies.memo.content import Contents, is_same
from flatout.remedies.memo.kept_calls import CarriedResults, KeptCalls, MemoryRoom
from flatout.words import english
from tests.unit.remedies.applied import applied, live_in_english, reason, site_for
from tests.unit.remedies.modules import Load, load

__all__ = ["load"]
TARGETS = """
from dataclasses import dataclass
import torch
CALLS = []
SCALE = 2.0

@dataclass
class Data:
    radius: int = 1

def caps(points, size):
    out = torch.zeros(points.shape[0], size)
    for i in range(points.shape[0]):
        for x in range(size):
            out[i, x] = torch.clamp(1 - (x - points[i]) ** 2 / SCALE, min=0)
    return out

class Engine:
    def __init__(self):
        self.data = Data()
    def targets(self, points):
        wide = caps(points, 16)
        return wide * self.data.radius, {"sum": wide.sum(), "parts": [wide.max(), 3]}
    @staticmethod
    def still(x): return x
"""


def parts(result: Any) -> list[torch.Tensor]:
    return [result[0], result[1]["sum"], result[1]["parts"][0]]


def test_results_come_back_as_copies(load: Load) -> None:
    module = load(TARGETS)
    plain, engine = module.Engine.targets, module.Engine()
    batches = [torch.rand(4) * 16 for _ in range(3)]
    expected = [plain(engine, batch) for batch in batches]

    with applied("memo.function", f"{module.__name__}:Engine.targets") as site:
        for epoch in range(4):
            for number, batch in enumerate(batches):
                found = engine.targets(batch.clone())
                assert all(map(torch.equal, parts(found), parts(expected[number])))
                assert found[1]["parts"][1] == 3
                found[0].zero_()
                found[1]["parts"].clear()
                site.stepped(3 * epoch + number + 1)

    assert reason(site) == "" and module.Engine.targets is plain
    assert (site.live["hits"], site.live["misses"]) == (9, 3)
    # Steps 4, 5 and 6 are computed again and compared.
    assert site.live["hits_from_step"] == 7
    assert site.live["kept_bytes"] == 3 * (4 * 16 * 4 + 2 * 4 + 4 * 4)


def test_what_it_reads_besides_its_arguments_counts(load: Load) -> None:
    module: Any = load(TARGETS)
    engine, batch = module.Engine(), torch.rand(4)

    with applied("memo.function", f"{module.__name__}:Engine.targets") as site:
        for _ in range(6):
            before = engine.targets(batch)
        engine.data.radius = 2
        after = engine.targets(batch)
        module.SCALE = 4.0
        wider = engine.targets(batch)
        assert site.in_force
        caps, module.caps = module.caps, lambda points, size: caps(points, size) * 0
        nothing = engine.targets(batch)

        assert site.state == "reverted" and "caps is another function than it was" in reason(site)

    assert torch.equal(after[0], before[0] * 2)
    assert not torch.equal(wider[0], after[0])
    assert not nothing[0].any()


def _calls(module: ModuleType, name: str, **more: Any) -> tuple[Callable[..., Any], KeptCalls, list[tuple[str, bool]]]:
    ended: list[tuple[str, bool]] = []
    room = more.pop("room", MemoryRoom(lambda kind: 1 << 30))

    def stop(calls: KeptCalls, why: Message, is_refusal: bool) -> None:
        ended.append((english(why), is_refusal))

    calls = KeptCalls(site_for("memo.function", "x"), name, room, stop, **more)
    return calls.make(getattr(module, name)), calls, ended


HEAD = "import functools, random\nimport numpy as np\nimport torch\nSTATE = {'count': 0}\n"
BROKEN = {
    "random": ("def f(x): return x + rand(4)", "draws random numbers", True),
    "returns its argument": ("def f(x): return x", "shares memory", True),
    "returns a view": ("def f(x): return x.view(-1)[1:]", "shares memory", True),
    "returns a list it was given": ("def f(x, parts=[1]): return x + 1, parts", "one of its arguments", True),
    "returns the same twice": ("def f(x):\n    y = x + 1\n    return y, y", "shares memory", True),
    "returns a window": ("def f(x): return (x + 1)[::2]", "view of something larger", True),
    "returns an iterator": ("def f(x): return zip(x, x)", "returns a zip", True),
    "gradients": ("def f(x): return torch.tensor([1.0], requires_grad=True)", "gradients flow", True),
    "hidden draw": ("def f(x): return torch.neg(x)", "random generator", True),
    "hidden change": ("def f(x): return torch.square(x)", "changes what it is given", True),
    "hidden state": ("def f(x): return torch.abs(x)", "another result", False),
}


@pytest.fixture
def tampered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions of torch that do more than they should, and look as they always did: no source tells."""
    counted = iter(range(1000))

    def neg(x: torch.Tensor) -> torch.Tensor:
        return x * torch.rand(1)

    def square(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2) * 1

    def absolute(x: torch.Tensor) -> torch.Tensor:
        return x + next(counted)

    for name, stand_in in (("neg", neg), ("square", square), ("abs", absolute)):
        stand_in.__module__, stand_in.__name__ = "torch", name
        monkeypatch.setattr(torch, name, stand_in)


@pytest.mark.usefixtures("tampered")
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_ends_it_and_what_was_computed_counts(load: Load, name: str) -> None:
    text, why, is_refusal = BROKEN[name]
    module = load(HEAD + "from torch import rand\n" + text)
    call, calls, ended = _calls(module, "f")
    results = [call(torch.ones(4)) for _ in range(6)]

    assert len(ended) == 1 and why in ended[0][0] and ended[0][1] is is_refusal, ended
    if name == "hidden state":
        assert [int(one[0]) for one in results] == [1, 2, 3, 4, 5, 6]
    assert calls.saved_s == 0


@pytest.fixture
def by_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tensors are in the key by their sums, as large ones on a device are."""
    monkeypatch.setattr(asked, "Contents", partial(Contents, most_bytes=lambda kind: 0))


@pytest.mark.usefixtures("by_sums")
@pytest.mark.parametrize("collides", [False, True])
def test_equal_sums_are_no_hit_unless_all_bits_are_equal(
    load: Load, monkeypatch: pytest.MonkeyPatch, collides: bool
) -> None:
    if collides:
        monkeypatch.setattr(Contents, "_sums", lambda self, flat: (0, 0))
    module = load(HEAD + "def f(x): return x * 2")
    call, calls, ended = _calls(module, "f")
    ones, twos = torch.ones(5), torch.full((5,), 2.0)

    found = [call(tensor).sum().item() for tensor in (ones, twos, ones, twos, ones, twos) * 3]

    assert found == [10.0, 20.0] * 9 and not ended
    # Of two with the same sums the first is kept, the other one computed each time.
    assert (calls.hits, calls.misses) == ((8, 10) if collides else (16, 2))
    ones.add_(1)
    assert call(ones).sum() == 20


def test_an_error_of_the_users_is_the_users(load: Load) -> None:
    module = load(HEAD + "def f(x):\n    if x.sum() > 3: raise ValueError('too much')\n    return x + 1")
    call, calls, ended = _calls(module, "f")

    for _ in range(3):
        with pytest.raises(ValueError, match="too much"):
            call(torch.ones(4))
    with pytest.raises(TypeError, match="missing"):
        call()
    assert call(torch.zeros(4)).sum() == 4
    assert not ended and calls.misses == 1


def test_torch_settings_are_part_of_what_is_asked(load: Load) -> None:
    module = load(HEAD + "def f(x): return x @ torch.zeros(4, 4)")
    call, calls, _ = _calls(module, "f")
    x = torch.ones(4, 4)

    for _ in range(6):
        call(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert call(x).dtype == torch.bfloat16
    torch.set_default_dtype(torch.float64)
    try:
        assert call(x.double()).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.device("meta"):
        call(x)
    assert (calls.misses, calls.hits, calls.skipped) == (3, 5, 1)


@pytest.mark.parametrize(("function", "misses"), [("x @ x", 2), ("(x * x).sum()", 1)])
def test_how_products_round_counts_where_there_are_some(load: Load, function: str, misses: int) -> None:
    call, calls, _ = _calls(load(HEAD + f"def f(x): return {function}"), "f")
    before = torch.backends.cudnn.benchmark

    try:
        for torch.backends.cudnn.benchmark in (before, not before):
            call(torch.ones(4, 4))
    finally:
        torch.backends.cudnn.benchmark = before
    assert calls.misses == misses


def test_only_the_first_thread_keeps(load: Load) -> None:
    module = load(HEAD + "def f(x): return x + 1")
    call, calls, _ = _calls(module, "f")
    call(torch.ones(2))

    other = threading.Thread(target=call, args=(torch.ones(2),))
    other.start()
    other.join()

    assert calls.calls == 1


def test_a_forked_child_keeps_nothing(load: Load) -> None:
    module = load(HEAD + "def f(x): return x + 1")
    call, calls, _ = _calls(module, "f")
    call(torch.ones(2))

    child = os.fork()
    if child == 0:
        call(torch.ones(2))
        os._exit(calls.calls)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


class Clock:
    """Every look takes a second."""

    def __init__(self, each_s: float = 1.0) -> None:
        self.now_s = 0.0
        self._each_s = each_s

    def __call__(self) -> float:
        self.now_s += self._each_s
        return self.now_s


def test_it_ends_when_looking_up_costs_more_than_the_function(load: Load) -> None:
    module = load(HEAD + "def f(x): return x + 1")
    call, calls, ended = _calls(module, "f", clock=Clock())

    for number in range(40):
        call(torch.full((2,), float(number)))

    assert calls.misses == 20
    assert ended == [("looking up its arguments takes 1900.00 ms a call, the function itself 1000.00 ms", False)]


def test_it_ends_when_the_memory_is_full_and_nothing_comes_again(load: Load) -> None:
    module = load(HEAD + "def f(x):\n    for i in range(200): x = x + 1\n    return x")
    call, calls, ended = _calls(module, "f", room=MemoryRoom(lambda kind: 800 - calls_room()))
    room = calls._room

    def calls_room() -> int:
        return room.taken_bytes

    for number in range(40):
        call(torch.full((2,), float(number)))

    assert calls.misses == 16 and calls.is_full
    assert ended == [("the memory for its results is full, and no arguments came again", False)]


def test_what_did_not_fit_is_computed_as_ever(load: Load) -> None:
    module = load(HEAD + "def f(x):\n    for i in range(200): x = x + 1\n    return x")
    call, calls, ended = _calls(module, "f", room=MemoryRoom(lambda kind: 400))

    for _ in range(3):
        for number in range(4):
            assert call(torch.full((2,), float(number)))[0] == number + 200

    assert not ended
    assert (calls.hits, calls.misses) == (4, 8)


def test_hits_are_compared_now_and_then_within_a_hundredth_of_the_time(load: Load) -> None:
    module = load(HEAD + "def f(x): return x + 1")
    clock = Clock(0.0)
    call, calls, _ = _calls(module, "f", clock=clock)
    computed = []
    original = calls._compare

    def compare(*args: Any) -> None:
        computed.append(calls.hits + 1)
        original(*args)

    calls._compare = compare  # type: ignore[method-assign,assignment]

    for _ in range(60):
        clock.now_s += 1.0
        call(torch.ones(2))

    assert computed[:3] == [1, 2, 3]
    assert computed[3:] == [13, 53]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("{}:missing", "has no function 'missing'"),
        ("{}:Engine", "has no function 'Engine'"),
        ("{}:Engine.still", "no plain function"),
        ("{}:Nobody.still", "has no function"),
        ("{}:SCALE", "has no function"),
    ],
)
def test_what_is_no_function_is_told(load: Load, value: str, why: str) -> None:
    module = load(TARGETS)

    with applied("memo.function", value.format(module.__name__)) as site:
        assert why in reason(site) and site.state == "refused"


def test_what_never_comes_is_told() -> None:
    with applied("memo.function", "no_such_module_of_anybody:f,__main__:no_such_function") as site:
        for step in (1, 2, 3):
            site.stepped(step)

        assert site.state == "refused" and "has not imported 'no_such_module_of_anybody'" in reason(site)


def test_one_that_cannot_be_kept_does_not_end_the_others(load: Load) -> None:
    module = load(TARGETS + "\ndef other(x):\n    print(x)\n    return x\n")
    name = module.__name__

    with applied("memo.function", f"{name}:other,{name}:caps") as site:
        for step in range(1, 9):
            module.other(1)
            module.caps(torch.ones(2), 4)
            site.stepped(step)

        assert site.in_force and site.live["hits"] == 7
        assert live_in_english(site)["left"] == "other: it calls print (other, line 28)"


def test_it_ends_after_two_epochs_in_which_nothing_came_again(load: Load) -> None:
    module = load(TARGETS)
    data: Any = torch.rand(6, 2)
    loader: Any = torch.utils.data.DataLoader(data, batch_size=2)
    step = 0

    with applied("memo.function", f"{module.__name__}:caps") as site:
        for _ in range(4):
            for batch in loader:
                module.caps(batch[0] + torch.rand(2), 4)
                step += 1
                if site.in_force:
                    site.stepped(step)

        assert site.state == "reverted" and "in two epochs of 3 batches" in reason(site)
        assert site.step == 7


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("a.b:C.d", "a.b:C.d"),
        (" a:b , c:d ", "a:b,c:d"),
        (["a:b", "c:d", "a:b"], "a:b,c:d"),
    ],
)
def test_names_are_read(written: object, read: str) -> None:
    assert known()["memo.function"].value.read(written) == read


@pytest.mark.parametrize("written", ["f", "a:", ":f", "a:b,", "a:b=5", True, [], 7])
def test_what_is_no_name_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="module:function"):
        known()["memo.function"].value.read(written)


# Results that one trial kept are found by the next, the same to the last bit.


_NAME = "engine:Engine.targets"


@pytest.mark.parametrize(
    "result",
    [
        torch.tensor([0.1, -0.0, float("nan")]),
        torch.rand(3, 4, 5).to(torch.bfloat16),
        torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.zeros(0, 3),
        torch.tensor(7),
        {"a": [torch.ones(2), 3], "b": (torch.arange(4), "x", None), "size": torch.Size([1, 2])},
    ],
)
def test_what_was_kept_comes_back(tmp_path: Path, result: Any) -> None:
    key = (torch.Tensor, (torch.Size([2]), torch.float32, torch.device("cpu")), b"bits")
    large = (torch.arange(9, dtype=torch.uint8),)

    assert CarriedResults(torch, str(tmp_path / "new"), _NAME).save({key: (result, large, 0.5)}, 100)
    ((found_key, (found, found_large, took_s)),) = CarriedResults(torch, str(tmp_path / "new"), _NAME).load().items()

    assert found_key == key and took_s == 0.5
    assert is_same(torch, found, result) and torch.equal(found_large[0], large[0])


def test_of_each_function_there_is_a_file_and_the_first_one_counts(tmp_path: Path) -> None:
    ours, other = (CarriedResults(torch, str(tmp_path), name) for name in (_NAME, "engine:other"))

    assert ours.save({1: (torch.ones(1), (), 0.1)}, 4)
    assert ours.save({2: (torch.ones(1), (), 0.1)}, 4)

    assert set(ours.load()) == {1} and not other.load()
    assert len(list(tmp_path.iterdir())) == 1


def test_what_cannot_be_written_or_read_is_computed_again(tmp_path: Path) -> None:
    ours = CarriedResults(torch, str(tmp_path), _NAME)

    assert not ours.save({(lambda: None): (torch.ones(1), (), 0.1)}, 4)
    assert not ours.load()
    assert ours.save({1: (torch.ones(1), (), 0.1)}, 4)
    (file,) = tmp_path.glob("*.kept")
    file.write_bytes(file.read_bytes()[:-20])
    assert not ours.load()


def test_without_a_folder_or_with_too_much_nothing_is_carried(tmp_path: Path) -> None:
    kept = {1: (torch.ones(1), (), 0.1)}

    assert not CarriedResults(torch, None, _NAME).save(kept, 4) and not CarriedResults(torch, None, _NAME).load()
    assert not CarriedResults(torch, str(tmp_path), _NAME).save(kept, carried._MOST_BYTES + 1)
    assert not CarriedResults(torch, str(tmp_path), _NAME).save({}, 0)
    assert not list(tmp_path.iterdir())

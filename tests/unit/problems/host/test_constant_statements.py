"""Which statements build the same tensor every time, told from the source alone."""

from __future__ import annotations

import textwrap

import pytest

from flatout.problems.host.constant_statements import find_constants

HEAD = "import math\nimport numpy as np\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n"


def built(source: str) -> list[str]:
    """The text of the statements found, in order; those of which only the copy counts begin with `copy `."""
    text = HEAD + textwrap.dedent(source)
    lines = text.splitlines()
    found = sorted(find_constants((("train.py", text),)), key=lambda statement: statement.first)
    return [("" if finding.whole else "copy ") + lines[finding.first - 1].strip() for finding in found]


@pytest.mark.parametrize(
    "statement",
    [
        "k = torch.tensor([[1.0, 2.0, 1.0]]).to(x.device)",
        "k = torch.arange(16, device=x.device, dtype=x.dtype)",
        "k = torch.from_numpy(np.array([0.1, 0.2])).cuda()",
        "k = x.new_tensor([0.485, 0.456, 0.406])",
        "k = torch.stack(torch.meshgrid(torch.linspace(0, 1, 64), torch.linspace(0, 1, 64), indexing='ij'))",
        "k = torch.hann_window(SIZE)",
        "k = torch.ones(cfg.model.classes) / 3",
        "k = torch.tensor([math.exp(-i) for i in range(9)]).view(1, -1)",
    ],
)
def test_made_of_literals_and_settings(statement: str) -> None:
    assert built(f"SIZE = 400\ndef forward(x):\n    {statement}\n    return x * k\n") == [statement]


@pytest.mark.parametrize(
    "statement",
    [
        "k = torch.arange(x.shape[1])",
        "k = torch.tensor(x.tolist())",
        "k = torch.randn(3, 3)",
        "k = torch.tensor(np.random.rand(3))",
        "k = torch.zeros(3, 3)",
        "k = torch.ones(len(x))",
        "k = torch.tensor([1.0], requires_grad=True)",
        "k = nn.Linear(3, 3)",
        "k = x.to('cuda')",
        "k = torch.ones(n)",
    ],
)
def test_made_of_the_batch_by_chance_or_by_what_is_not_known(statement: str) -> None:
    assert built(f"def forward(x, n):\n    {statement}\n    return x * k\n") == []


def test_what_is_changed_later_is_no_constant() -> None:
    source = """
        def forward(x, rows):
            total = torch.tensor(0.0)
            out = torch.ones(8, 8)
            weights = torch.full((3,), 0.5)
            for row in rows:
                total = total + row.sum()
                out[row] = 1.0
            weights.mul_(x)
            return total, out, weights
    """
    assert built(source) == []


def test_a_counter_is_no_constant_and_neither_is_a_loop_variable() -> None:
    source = """
        step = 0
        for epoch in range(10):
            for batch in loader:
                rate = torch.tensor(step)
                at = torch.tensor([epoch])
                means = torch.tensor([0.5, 0.5]).to(device)
                loss = model((batch - means) * rate * at)
                loss.backward()
                step += 1
    """
    assert built(source) == ["means = torch.tensor([0.5, 0.5]).to(device)"]


def test_what_is_done_once_before_the_loop_or_in_init_or_kept_by_a_cache_is_well() -> None:
    source = """
        import functools

        grid = torch.linspace(0, 1, 64)

        class Net(nn.Module):
            def __init__(self):
                self.grid = torch.linspace(0, 1, 64)

        @functools.lru_cache
        def window():
            return torch.hann_window(512)

        def train(loader):
            weights = torch.tensor([1.0, 2.0])
            for batch in loader:
                loss = F.cross_entropy(model(batch), weights)
                loss.backward()
    """
    assert built(source) == []


def test_a_function_that_is_only_given_constants_is_followed() -> None:
    source = """
        def gaussian(size, sigma=1.5):
            places = [(i - size // 2) ** 2 for i in range(size)]
            line = torch.exp(-torch.tensor(places) / sigma)
            return line / line.sum()

        def blur(x):
            return F.conv1d(x, gaussian(11).to(x.device))
    """
    assert built(source) == [
        "places = [(i - size // 2) ** 2 for i in range(size)]",
        "line = torch.exp(-torch.tensor(places) / sigma)",
        "return line / line.sum()",
        "copy return F.conv1d(x, gaussian(11).to(x.device))",
    ]


def test_a_function_that_is_given_the_batch_once_is_not() -> None:
    source = """
        def gaussian(size):
            return torch.arange(size) / size

        def blur(x):
            return x * gaussian(11) + gaussian(x.shape[1])
    """
    assert built(source) == []


def test_attributes_count_if_they_are_plain_numbers_set_once() -> None:
    source = """
        class Net(nn.Module):
            def __init__(self, size, net):
                self.size = size
                self.width = 3
                self.scale = nn.Parameter(torch.ones(3))

            def grow(self):
                self.width += 1

            def forward(self, x):
                grid = torch.arange(self.size)
                other = torch.arange(self.width)
                third = torch.tensor([1.0]) * self.scale
                return x * grid * other * third
    """
    assert built(source) == ["grid = torch.arange(self.size)"]


def test_what_is_no_python_has_none() -> None:
    assert find_constants((("train.py", "def f(:"),)) == ()

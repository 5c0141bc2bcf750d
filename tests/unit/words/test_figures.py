"""No power of ten reaches a sentence."""

from __future__ import annotations

import pytest

from flatout.words.render import plain


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{861.2:.3g} of {1159.0:.3g} ms", "861 of 1,160 ms"),
        (f"{1.2e6:.3g} bytes", "1,200,000 bytes"),
        (f"{0.00002:.3g} s at model.e+03", "2e-05 s at model.e+03"),
        ("nothing to do", "nothing to do"),
    ],
)
def test_large_figures_are_written_out(text: str, said: str) -> None:
    assert plain(text) == said

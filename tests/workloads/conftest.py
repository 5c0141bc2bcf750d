"""Projects run within the tests' own process, and some of them set torch up as they like it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def _torch_as_it_was() -> Iterator[None]:
    """Whatever tests come next in this process find the settings that torch begins with."""
    cudnn = torch.backends.cudnn
    precision, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    flags = {name: getattr(cudnn, name) for name in ("allow_tf32", "benchmark", "deterministic")}
    is_deterministic = torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_float32_matmul_precision(precision)
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(is_deterministic)
    for name, value in flags.items():
        setattr(cudnn, name, value)

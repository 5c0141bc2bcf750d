"""TF32 for a script that does not choose, and the script's own choice where it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from flatout.records.report import GpuUse
from flatout.remedies.catalogue import known
from flatout.remedies.site import Refused
from tests.cases.evidence import on_gpu, run
from tests.unit.remedies.applied import applied, reason, site_for


def _state() -> tuple[object, ...]:
    matmul = torch.backends.cuda.matmul
    return (
        torch.get_float32_matmul_precision(),
        matmul.allow_tf32,
        torch.backends.cudnn.allow_tf32,
        getattr(matmul, "fp32_precision", None),
    )


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch built for CUDA has the same switches."""
    monkeypatch.setattr(torch.version, "cuda", "12.8")


def test_it_is_refused_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)

    with pytest.raises(Refused, match="without CUDA"):
        known()["precision.tf32"].apply(site_for("precision.tf32", True), True)


@pytest.mark.usefixtures("cuda")
def test_it_is_set_and_put_back() -> None:
    before = _state()

    with applied("precision.tf32") as site:
        during = _state()
        assert site.in_force

    assert during[:3] == ("high", True, True)
    assert _state() == before


@pytest.mark.parametrize(
    ("busy", "tensor", "state", "is_tried"),
    [
        (0.5, 0.01, {}, True),
        (0.1, 0.01, {}, False),  # it hardly computes
        (0.5, 0.2, {}, False),  # they work already
        (0.5, None, {}, False),  # not counted on this card
        (0.5, 0.01, {"matmul_precision": "high"}, False),
        (0.5, 0.01, {"grad_dtypes": {"float32": 0.5, "float64": 0.5}}, False),
        (0.5, 0.01, {"grad_dtypes": {"float32": 0.95, "bfloat16": 0.05}}, False),
    ],
)
def test_where_a_look_costs_little_it_is_tried_without_a_finding(
    busy: float, tensor: float | None, state: dict[str, object], is_tried: bool
) -> None:
    live = {"torch": {"matmul_precision": "highest", "grad_dtypes": {"float32": 1.0}, **state}}
    report = replace(run(gpu=on_gpu()).report, gpu=GpuUse(busy_share=busy, tensor_active=tensor), live=live)

    assert known()["precision.tf32"].applies(report).is_yes is is_tried
    assert known()["precision.bf16"].applies(report).is_yes is is_tried


def _new_name(value: str) -> None:
    torch.backends.cuda.matmul.fp32_precision = value


def _old_name() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False


def _cudnn() -> None:
    torch.backends.cudnn.allow_tf32 = False


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize(
    ("choose", "value"),
    [
        (lambda: torch.set_float32_matmul_precision("highest"), "'highest'"),
        (_old_name, "False"),
        (lambda: _new_name("ieee"), "'ieee'"),
        (_cudnn, "False"),
    ],
    ids=["function", "old name", "new name", "cudnn"],
)
def test_the_scripts_choice_holds(choose: Callable[[], None], value: str) -> None:
    if "ieee" in value and not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        pytest.skip("this torch has one name for it")
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        with applied("precision.tf32") as site:
            choose()

            assert site.state == "refused" and reason(site) == f"the script sets it itself, to {value}"
            # Reading raises where two of torch's names disagree.
            assert _state()[:2] == ("highest", False)
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


@pytest.mark.usefixtures("cuda")
def test_the_switches_themselves_are_the_originals_again() -> None:
    kind = type(torch.backends.cudnn)
    before = kind.__dict__["allow_tf32"], type(torch.backends.cuda.matmul).__dict__["__setattr__"]

    with applied("precision.tf32"):
        assert kind.__dict__["allow_tf32"] is not before[0]

    assert kind.__dict__["allow_tf32"] is before[0]
    assert type(torch.backends.cuda.matmul).__dict__["__setattr__"] is before[1]
